"""Broker properties of transactions, with Kafka's names, types, limits and defaults."""

from __future__ import annotations

from penstock.config.definitions import Importance, Kind, at_least
from penstock.config.log_table import SEGMENT_BYTES_MIN
from penstock.config.tables import Section, prop

HIGH, LOW = Importance.HIGH, Importance.LOW
INT, SHORT = Kind.INT, Kind.SHORT


class Transactions(Section, title="Transactions"):
    """Settings of transactional producers."""

    transaction_max_timeout_ms: int = prop(
        "transaction.max.timeout.ms",
        INT,
        900_000,
        at_least(1),
        "The longest `transaction.timeout.ms` that a producer may ask for; a longer one is refused with "
        "INVALID_TRANSACTION_TIMEOUT. An open transaction holds back all consumers that read only committed records.",
        importance=HIGH,
    )
    transactional_id_expiration_ms: int = prop(
        "transactional.id.expiration.ms",
        INT,
        604_800_000,
        at_least(1),
        "A transactional id that was not used for this long is forgotten. A producer that comes back later starts with "
        "a new producer id.",
        importance=HIGH,
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = prop(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        INT,
        10_000,
        at_least(1),
        "How often coordinators look for transactions that exceeded their timeout, and abort them.",
        importance=LOW,
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = prop(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        INT,
        3_600_000,
        at_least(1),
        "How often coordinators look for transactional ids that have expired, and forget them.",
        importance=LOW,
    )
    add_partitions_to_txn_retry_backoff_ms: int = prop(
        "add.partitions.to.txn.retry.backoff.ms",
        INT,
        20,
        at_least(1),
        "The pause before a partition leader asks the transaction coordinator again, while the producer's previous "
        "transaction is still being completed.",
        importance=HIGH,
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = prop(
        "add.partitions.to.txn.retry.backoff.max.ms",
        INT,
        100,
        at_least(0),
        "For how long a partition leader does so. After that the producer is told to retry the batch.",
        importance=HIGH,
    )
    penstock_transactions_open_max: int = prop(
        "penstock.transactions.open.max",
        INT,
        20_000,
        at_least(1),
        "The maximum number of transactions that are open at the same time on one coordinating broker. A further one "
        "is refused with POLICY_VIOLATION. Kafka has no such limit.",
    )
    penstock_transactional_ids_max: int = prop(
        "penstock.transactional.ids.max",
        INT,
        1_000_000,
        at_least(1),
        "The maximum number of transactional ids that one broker coordinates. A producer with a further id is refused "
        "with POLICY_VIOLATION until others have expired. Kafka has no such limit.",
    )


class TransactionTopic(Section, title="The topic of transactions"):
    """The topic `__transaction_state`. The settings are used when the topic is created, with the first transactional
    producer."""

    transaction_state_log_num_partitions: int = prop(
        "transaction.state.log.num.partitions",
        INT,
        50,
        at_least(1),
        "The number of partitions of `__transaction_state`, over which transactional ids are distributed. It should "
        "not be changed after the topic was created.",
        importance=HIGH,
    )
    transaction_state_log_replication_factor: int = prop(
        "transaction.state.log.replication.factor",
        SHORT,
        3,
        at_least(1),
        "The replication factor of `__transaction_state`. If fewer brokers are live when the topic is created, it gets "
        "one replica on each of them.",
        importance=HIGH,
    )
    transaction_state_log_min_isr: int = prop(
        "transaction.state.log.min.isr",
        INT,
        2,
        at_least(1),
        "`min.insync.replicas` of `__transaction_state`, at most its replication factor.",
        importance=HIGH,
    )
    transaction_state_log_segment_bytes: int = prop(
        "transaction.state.log.segment.bytes",
        INT,
        104_857_600,
        at_least(SEGMENT_BYTES_MIN),
        "The segment size of `__transaction_state`. Small segments are compacted sooner and make loading faster.",
        importance=HIGH,
    )
