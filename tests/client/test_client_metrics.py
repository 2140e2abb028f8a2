"""Metrics of the clients: Kafka's names, what they are made of, and their page."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from client.test_consumer import fill, reader
from penstock.client import Producer, SettingsError, defaults, serve_metrics
from penstock.client.buffer import BufferAccount
from penstock.client.metrics import ConsumerMetrics, ProducerMetrics
from penstock.client.options import consumer_options, producer_options
from support.waiting import wait_until

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "client.md"


def window(average: float, count: int, maximum: float = 0) -> dict[str, float]:
    return {"avg": average, "cnt": count, "max": maximum, "p99": maximum, "sum": average * count}


def test_producer_metrics_come_from_librdkafkas_statistics() -> None:
    account = BufferAccount(1000)
    metrics = ProducerMetrics("c", account)
    for _ in range(10):
        account.take(20)
    broker = {"rtt": window(2000, 10, 5000), "txretries": 3, "waitresp_cnt": 2, "state": "UP", "throttle": window(7, 1)}
    idle = {"rtt": window(0, 0), "txretries": 0, "waitresp_cnt": 0, "state": "INIT"}
    topic = {"batchsize": window(100, 2, 150), "batchcnt": window(10, 2)}
    for second, sent in ((1, 100), (2, 400)):
        statistics = {
            "ts": second * 1_000_000, "txmsgs": sent, "tx": 5, "tx_bytes": 10,
            "brokers": {"a": broker, "b": idle}, "topics": {"t": topic},
        }  # fmt: skip
        metrics.take_statistics(json.dumps(statistics))
    expected = {
        "record-send-total": 400, "record-send-rate": 300, "record-retry-total": 3, "request-latency-avg": 2,
        "request-latency-max": 5, "batch-size-avg": 100, "batch-size-max": 150, "records-per-request-avg": 10,
        "compression-rate-avg": 200 / (20 * 20), "buffer-available-bytes": 800, "buffer-total-bytes": 1000,
        "requests-in-flight": 2, "connection-count": 1, "record-size-avg": 20, "produce-throttle-time-avg": 7,
        "record-error-total": 0,
    }  # fmt: skip
    assert {name: metrics.value(name) for name in expected} == pytest.approx(expected)
    account.failed_records = 4
    assert metrics.value("record-error-total") == 4


def test_consumer_metrics_come_from_librdkafkas_statistics() -> None:
    metrics = ConsumerMetrics("c")
    metrics.commit_latency.record(4)
    metrics.commit_latency.record(8)
    partitions = {name: {"consumer_lag": lag} for name, lag in (("0", 5), ("1", 50), ("2", -1), ("-1", 900))}
    for second, count in ((1, 10), (3, 30)):
        metrics.take_statistics(
            json.dumps({
                "ts": second * 1_000_000, "rxmsgs": count, "rxmsg_bytes": count * 10,
                "brokers": {"a": {"rtt": window(3000, 1, 4000), "req": {"Fetch": count // 10}}},
                "topics": {"t": {"topic": "t", "partitions": partitions}},
                "cgrp": {"assignment_size": 2, "rebalance_cnt": second, "rebalance_age": 7000},
            })
        )  # fmt: skip
    expected = {
        "records-consumed-total": 30, "records-consumed-rate": 10, "bytes-consumed-rate": 100, "fetch-total": 3,
        "fetch-rate": 1, "records-per-request-avg": 10, "records-lag-max": 50, "assigned-partitions": 2,
        "rebalance-total": 3, "last-rebalance-seconds-ago": 7, "fetch-latency-avg": 3, "fetch-latency-max": 4,
    }  # fmt: skip
    assert {name: metrics.value(name) for name in expected} == pytest.approx(expected)
    assert 'records_lag{client_id="c",topic="t",partition="1"} 50' in metrics.render()
    assert metrics.value("rebalance-rate-per-hour") == 3600


def test_commit_latency_is_that_of_the_last_two_intervals() -> None:
    metrics = ConsumerMetrics("c")
    metrics.commit_latency.record(4)
    metrics.commit_latency.record(8)
    assert (metrics.value("commit-latency-avg"), metrics.value("commit-latency-max")) == (6, 8)
    metrics.take_statistics("{}")
    metrics.commit_latency.record(3)
    assert (metrics.value("commit-latency-avg"), metrics.value("commit-latency-max")) == (5, 8)
    metrics.take_statistics("{}")
    metrics.take_statistics("{}")
    assert metrics.value("commit-latency-max") == 0


def test_real_clients_are_served_on_one_page(bootstrap: str, create_topic: Callable[..., str]) -> None:
    topic = create_topic()
    fill(bootstrap, topic, 100)
    producer = Producer(bootstrap, statistics_interval_ms=100, client_id="writer")
    consumer = reader(bootstrap, topic, statistics_interval_ms=100, client_id="reader")
    with producer, consumer, serve_metrics("127.0.0.1:0", producer.metrics, consumer.metrics) as server:
        for number in range(50):
            producer.send(topic, str(number))
        producer.flush()

        def page() -> str:
            consumer.poll(0.01)
            with urllib.request.urlopen(server.url, timeout=5) as answer:
                return str(answer.read().decode())

        lag = "kafka_consumer_consumer_fetch_manager_metrics_records_lag"
        wanted = (
            'kafka_producer_producer_metrics_record_send_total{client_id="writer"} 50\n',
            'kafka_consumer_consumer_fetch_manager_metrics_records_consumed_total{client_id="reader"} 150\n',
            f'{lag}{{client_id="reader",topic="{topic}",partition="0"}} 0\n',
            'kafka_consumer_consumer_coordinator_metrics_assigned_partitions{client_id="reader"} 1\n',
        )
        wait_until(lambda: all(line in page() for line in wanted))

        def latest() -> bool:
            producer.send(topic, b"v")
            return producer.metrics.value("request-latency-avg") > 0 and producer.metrics.value("batch-size-avg") > 0

        wait_until(latest)
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{server.port}/other", timeout=5)
        with pytest.raises(SettingsError, match="cannot listen"):
            serve_metrics(f"127.0.0.1:{server.port}", producer.metrics)


@pytest.mark.parametrize(("title", "table"), [("Producer", defaults.PRODUCER), ("Consumer", defaults.CONSUMER)])
def test_the_page_lists_every_default(title: str, table: dict[str, defaults.Default]) -> None:
    text = DOCS.read_text()
    rows = [f"| `{name}` | `{default.value}` | {default.why} |" for name, default in table.items()]
    assert "\n".join([f"| {title} | default | why |", "|---|---|---|", *rows]) in text


def test_the_page_lists_every_metric() -> None:
    text = DOCS.read_text()
    consumer = ConsumerMetrics("c")
    consumer.take_statistics(json.dumps({"topics": {"t": {"topic": "t", "partitions": {"0": {"consumer_lag": 1}}}}}))
    for sample in [*ProducerMetrics("c", BufferAccount(1)).samples(), *consumer.samples()]:
        short = sample.name
        for prefix in ("kafka_producer_producer_metrics_", "kafka_consumer_consumer_fetch_manager_metrics_",
                       "kafka_consumer_consumer_coordinator_metrics_"):  # fmt: skip
            short = short.removeprefix(prefix)
        short = short.removesuffix("_total") if short != "commit_failed_total" else short
        assert f"`{short.removesuffix('_rate')}" in text, f"docs/reference/client.md does not name {short}"


def test_the_documents_values_are_the_defaults() -> None:
    """P1 of the checklist, and what librdkafka is told in the end."""
    native = producer_options("b:1", None, {}).native
    expected = {
        "acks": "all", "enable.idempotence": "true", "batch.size": "16384", "linger.ms": "10",
        "queue.buffering.max.kbytes": "32768", "retry.backoff.ms": "100", "request.timeout.ms": "30000",
        "max.in.flight.requests.per.connection": "5", "retries": "2147483647", "partitioner": "murmur2_random",
    }  # fmt: skip
    assert expected.items() <= native.items()
    assert defaults.PRODUCER["max.block.ms"].value == "60000"
    assert defaults.PRODUCER["buffer.memory"].value == str(32 * 1024 * 1024)
    native = consumer_options("b:1", None, {"group.id": "g"}).native
    expected = {
        "fetch.min.bytes": "1", "fetch.wait.max.ms": "500", "max.partition.fetch.bytes": "1048576",
        "fetch.max.bytes": "52428800", "enable.auto.commit": "false", "enable.auto.offset.store": "false",
    }  # fmt: skip
    assert expected.items() <= native.items()
    assert defaults.CONSUMER["max.poll.records"].value == "500"
    assert defaults.CONSUMER["auto.commit.interval.ms"].value == "5000"


def test_what_is_given_wins_over_a_default_under_any_of_its_names() -> None:
    options = producer_options("b:1", {"queue.buffering.max.kbytes": 64}, {"max.in.flight": 1, "acks": 1})
    assert options.properties["buffer.memory"] == "65536"
    assert options.native["queue.buffering.max.kbytes"] == "64"
    assert options.native["max.in.flight.requests.per.connection"] == "1"
    assert options.native["enable.idempotence"] == "false", "which acks=1 rules out"


def test_the_raw_client_loads_no_librdkafka() -> None:
    """Readers in bulk and the command line start fast."""
    code = "import sys, penstock.client; print({'confluent_kafka', 'asyncio', 'sqlite3'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout == "set()\n"


def test_every_name_of_the_package_is_there() -> None:
    import penstock.client
    import penstock.client.stores

    for module in (penstock.client, penstock.client.stores):
        for name in module.__all__:
            assert getattr(module, name) is not None
        with pytest.raises(AttributeError):
            module.there_is_no_such_name  # noqa: B018
