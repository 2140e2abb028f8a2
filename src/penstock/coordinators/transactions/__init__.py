"""Transactions: all writes of a producer take effect together, or none of them does.

Theory of operation. A producer names itself with a *transactional id*. The id belongs to the partition of
`__transaction_state` that it hashes to, and the `TransactionShard` of that partition decides everything about it. The
shard knows the producer's id and epoch, and the partitions that the open transaction has written to.

    producer ── InitProducerId ─────→ shard      a new epoch: an older producer with the same id is fenced
    leader ──── AddPartitionsToTxn ─→ shard      Ongoing: the partition belongs to the transaction
    producer ── EndTxn ─────────────→ shard      PrepareCommit: the decision. It is never taken back
                                      shard ──── WriteTxnMarkers ─→ leaders of all partitions
                                      shard      CompleteCommit: every partition has its marker

The Prepare record is the moment of truth. The answer to EndTxn and the first marker leave only when it is committed
(the host guarantees that), so a failure before it leaves the transaction open, and a failure after it only delays the
markers: the next coordinator loads the record and sends them again. A leader takes the same marker twice.

`states` has the table of states and permitted changes.

**Two generations.** The *version* of a transaction is that of the requests which opened and ended it.

- Version 1 (in records: 0, as in Kafka): the producer registers partitions itself (AddPartitionsToTxn 0–3) before it
  writes, and keeps its epoch over many transactions.
- Version 2 (KIP-890): partition leaders register partitions when the first batch arrives (AddPartitionsToTxn 4+), and
  each EndTxn raises the producer's epoch. So a request delayed from an earlier transaction has an old epoch, and cannot
  affect a later transaction.

A transaction keeps its version if the cluster's `transaction.version` changes while it is open.

**Epochs run out.** The largest epoch for a producer is 32766, so that it can still be fenced with 32767. The EndTxn of
a transaction with epoch 32766 sends markers with 32767 and moves the transactional id to a new producer id with epoch
0. The answer has the new id at once; until the markers are written, requests with either id are told to try again
(CONCURRENT_TRANSACTIONS). That check comes before the comparison of ids (KAFKA-18660).

**Fencing.** InitProducerId during an open transaction, and the timeout of a transaction, raise the epoch by one and
abort. Kafka calls the step between PrepareEpochFence; here it is never visible, because the shard changes its state and
writes its record in one decision. If the write fails, the host discards the state and loads the log, so no epoch is
raised twice (KAFKA-19367).

**Memory.** An id without a transaction is a packed value of 42 bytes (`table`); only open and ending transactions are
objects.

    states         the states and the table of changes
    transaction    the state of one transactional id
    records        transactional ids ↔ records of `__transaction_state`
    table          all transactional ids of a shard, the settings and the limits
    shard          requests, loading
    producers      InitProducerId
    ending         EndTxn, fencing, completion
    markers        WriteTxnMarkers to the leaders of all partitions, until all have answered
    expiry         aborts transactions that take too long, and forgets unused ids
    listing        DescribeTransactions and ListTransactions
    config         the settings, and counters for the metrics
"""

from penstock.coordinators.transactions.config import TransactionConfig
from penstock.coordinators.transactions.shard import TransactionShard

__all__ = ["TransactionConfig", "TransactionShard"]
