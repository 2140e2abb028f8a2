"""Kafka's tools for transactions and their log, on both brokers: they must say the same.

Producer ids differ between brokers, and so does the time; both are hidden.
"""

from __future__ import annotations

import json
import re

import pytest
from confluent_kafka import Producer

from support.server_process import ServerProcess
from tools_of_kafka.both import Both

FORMATTER = "org.apache.kafka.tools.consumer.TransactionLogMessageFormatter"
TIMEOUT_S = 30


def producer_of(server: ServerProcess, transactional_id: str) -> Producer:
    producer = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(TIMEOUT_S)
    return producer


def transact(both: Both, server: ServerProcess, name: str) -> Producer:
    """A commit, an abort, and a transaction that stays open."""
    assert both.run(server, "kafka-topics", "--create", "--topic", name, "--partitions", "2").code == 0
    producer = producer_of(server, name)
    for end in (producer.commit_transaction, producer.abort_transaction, None):
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce(name, b"value", partition=partition)
        producer.flush(TIMEOUT_S)
        if end is not None:
            end(TIMEOUT_S)
    return producer


def test_transactions_are_listed_and_described(both: Both, name: str) -> None:
    open_ones = both.each(lambda server: transact(both, server, name))
    kafka, penstock = both.each(
        lambda server: [
            hidden(line)
            for tool in (("list",), ("describe", "--transactional-id", name))
            for line in both.run(server, "kafka-transactions", *tool).output.splitlines()
            if name in line
        ]
    )
    assert penstock == kafka
    assert any("Ongoing" in line for line in penstock), penstock
    for producer in open_ones:
        producer.abort_transaction(TIMEOUT_S)
    both.wait_for("CompleteAbort", "kafka-transactions", "describe", "--transactional-id", name)
    both.same("kafka-transactions", "describe", "--transactional-id", f"{name}-unknown")


def hidden(line: str) -> str:
    """Without the producer's id, and when and how long ago the transaction started."""
    line = re.sub(r"\d+ (Ongoing|Empty|Complete\w+)", r"ID \1", line)
    return re.sub(r"\d{13} \d+", "START DURATION", line)


def test_the_log_of_transactions_is_read_by_kafkas_formatter(both: Both, name: str) -> None:
    both.each(lambda server: transact(both, server, name).abort_transaction(TIMEOUT_S))
    both.wait_for("CompleteAbort", "kafka-transactions", "describe", "--transactional-id", name)
    kafka, penstock = both.each(lambda server: records(both, server, name))
    assert penstock == kafka
    assert [status for status, *_ in penstock] == [EMPTY, ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT] + 2 * [
        ONGOING, PREPARE_ABORT, COMPLETE_ABORT,
    ]  # fmt: skip


EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = range(6)


def records(both: Both, server: ServerProcess, name: str) -> list[tuple[int, int, int, object]]:
    """(status, epoch, timeout, partitions) of a transactional id, as Kafka's formatter shows them. Partitions may be
    added one by one: only the last of several records with the same status counts."""
    said = both.run(
        server,
        "kafka-console-consumer",
        "--topic", "__transaction_state", "--from-beginning", "--timeout-ms", "5000", "--formatter", FORMATTER,
    )  # fmt: skip
    found: list[tuple[int, int, int, object]] = []
    text, position = said.output, 0
    while position < len(text) and text[position] == "{":
        record, position = json.JSONDecoder().raw_decode(text, position)
        while position < len(text) and text[position].isspace():
            position += 1
        if record["key"]["data"]["transactionalId"] != name or record["value"] is None:
            continue
        assert record["value"]["version"] == 1
        value = record["value"]["data"]
        partitions = [(one["topic"], sorted(one["partitionIds"])) for one in value["transactionPartitions"] or ()]
        status = value["transactionStatus"]
        if found and found[-1][0] == status:
            found.pop()
        found.append((status, value["producerEpoch"], value["transactionTimeoutMs"], partitions))
    assert found, said
    return found


@pytest.mark.parametrize("level", [1, 0])
def test_the_version_of_transactions_is_changed_by_kafkas_tool(both: Both, name: str, level: int) -> None:
    tool, feature = "kafka-features", "transaction.version"
    lowered = both.run(both.penstock, tool, "downgrade", "--feature", f"{feature}={level}")
    assert lowered.code == 0, lowered
    try:
        said = both.run(both.penstock, tool, "describe").output
        (line,) = [line for line in said.splitlines() if feature in line]
        assert f"FinalizedVersionLevel: {level}" in line
        transact(both, both.penstock, name).commit_transaction(TIMEOUT_S)
    finally:
        raised = both.run(both.penstock, tool, "upgrade", "--feature", f"{feature}=2")
    assert raised.code == 0, raised
    transact(both, both.penstock, f"{name}-2").commit_transaction(TIMEOUT_S)


def test_the_java_producer_commits_transactions_of_version_2(both: Both, name: str) -> None:
    """Each commit raises the producer's epoch."""
    assert both.run(both.penstock, "kafka-topics", "--create", "--topic", name, "--partitions", "2").code == 0
    arguments = ("--topic", name, "--num-records", "2000", "--record-size", "10", "--throughput", "2000")
    produced = both.run(
        both.penstock,
        "kafka-producer-perf-test", *arguments, "--transactional-id", name, "--transaction-duration-ms", "50",
    )  # fmt: skip
    assert "2000 records sent" in produced.output, produced
    both_said = both.run(both.penstock, "kafka-transactions", "describe", "--transactional-id", name).output
    (line,) = [line for line in both_said.splitlines() if name in line]
    epoch = int(line.split()[3])
    assert epoch >= 5, both_said
    assert "CompleteCommit" in line
    consumed = both.run(
        both.penstock,
        "kafka-console-consumer",
        "--topic", name, "--from-beginning", "--isolation-level", "read_committed", "--timeout-ms", "5000",
    )  # fmt: skip
    assert len(consumed.output.splitlines()) == 2000
