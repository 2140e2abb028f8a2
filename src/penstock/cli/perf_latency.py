"""`penstock perf latency`: how long a record takes from the producer's call to the consumer's hand.

One record at a time, as Kafka's end-to-end latency tool: send, wait for the acknowledgement, wait until it is read.
Several levels of acks are measured one after the other, and what was measured is compared with the latency budget and
the classes of use (`penstock.perf.classes`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from random import Random
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import exit_codes
from penstock.cli.connection import Cluster
from penstock.cli.errors import CliError
from penstock.cli.options import DEFAULT_BOOTSTRAP_SERVER, DEFAULT_TIMEOUT_S, BootstrapServer, Json, examples
from penstock.cli.output import print_json, print_line, print_table
from penstock.cli.perf_live import TICK_S, Screen
from penstock.cli.perf_options import (
    Chart,
    CommandConfig,
    CommandProperty,
    MoreProperties,
    Topic,
    client_settings,
    cluster_of,
)
from penstock.perf import Histogram
from penstock.perf.classes import Verdict, verdicts
from penstock.perf.lines import PERCENTS, latency_results

if TYPE_CHECKING:
    from penstock.cli.library import Consumer, KafkaError, Message, Producer

ACKS = ("0", "1", "all")
PROGRESS_RECORDS = 1_000
WAIT_S = 60.0
POLL_S = 0.5
HEADERS_MAX = 10_000
LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"

EXAMPLES = examples(
    ("penstock perf latency --topic t --num-records 1000 --record-size 100", "acks=0, 1 and all, and what they allow"),
    ("penstock perf latency --topic t --num-records 10000 --producer-acks all --record-size 1024", "one of them"),
    ("penstock perf latency --topic t --num-records 200 --rounds 60 --every 60", "a series: one row a minute"),
)


def latency(
    topic: Topic,
    num_records: Annotated[
        int, typer.Option("--num-records", min=1, help="How many records, for each level of acks.")
    ] = 1000,
    producer_acks: Annotated[
        str, typer.Option("--producer-acks", metavar="ACKS", help="0, 1 or all; several are separated by commas.")
    ] = "0,1,all",
    record_size: Annotated[int, typer.Option("--record-size", min=0, help="The size of the value, in bytes.")] = 100,
    record_key_size: Annotated[int, typer.Option("--record-key-size", min=0, help="The size of the key.")] = 0,
    record_header_key_size: Annotated[
        int, typer.Option("--record-header-key-size", min=0, help="The size of each header's name.")
    ] = 0,
    record_header_size: Annotated[
        int, typer.Option("--record-header-size", min=-1, help="The size of each header's value; -1 for null.")
    ] = 0,
    num_headers: Annotated[
        int, typer.Option("--num-headers", min=0, max=HEADERS_MAX, help="How many headers a record has.")
    ] = 0,
    replication_factor: Annotated[
        int, typer.Option("--replication-factor", min=1, help="Of the topic, if it has to be created.")
    ] = 1,
    rounds: Annotated[
        int,
        typer.Option("--rounds", min=1, max=100_000, help="Measure so often: a series over time, one row for each."),
    ] = 1,
    every: Annotated[
        float, typer.Option("--every", metavar="SECONDS", min=0, max=86_400, help="Pause between two rounds.")
    ] = 60.0,
    command_property: CommandProperty = None,
    more_properties: MoreProperties = None,
    command_config: CommandConfig = None,
    chart: Chart = True,
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
) -> None:
    """Measure the latency from producer to consumer, and rate it."""
    levels = _levels(producer_acks)
    settings = client_settings(command_property, more_properties, "--command-property")
    cluster = cluster_of(bootstrap_server, command_config, settings, DEFAULT_TIMEOUT_S)
    copies = _copies(cluster, topic, replication_factor, quiet=json)
    shape = _Shape(record_size, record_key_size, num_headers, record_header_key_size, record_header_size)
    if rounds > 1:
        _series(cluster, topic, levels, num_records, shape, settings, rounds=rounds, every_s=every, json=json)
        return
    runs = {}
    with Screen(f"latency of {topic}", chart=chart and not json) as screen:
        for acks in levels:
            if len(levels) > 1 and not json:
                screen.say(f"acks={acks}")
            runs[acks] = _measure(cluster, topic, acks, num_records, shape, settings, screen, quiet=json)
            if not json:
                for line in latency_results(runs[acks].end_to_end):
                    screen.say(line)
    found = verdicts(
        {acks: run.end_to_end for acks, run in runs.items()},
        {acks: run.acknowledged for acks, run in runs.items()},
        copies,
    )
    if json:
        print_json(_result(topic, copies, runs, found))
        return
    print_line("")
    print_table("How long until it is acknowledged, and read", *_latency_rows(runs))
    print_line("")
    print_table("Suitable for", *_verdict_rows(found))


def _series(
    cluster: Cluster,
    topic: str,
    levels: Sequence[str],
    count: int,
    shape: _Shape,
    settings: dict[str, str],
    *,
    rounds: int,
    every_s: float,
    json: bool,
) -> None:
    """One row, or one JSON object, for each round and level of acks, as soon as it is measured."""
    if not json:
        print_line("time\tacks\tp50 ms\tp95 ms\tp99 ms\tmax ms")
    for number in range(rounds):
        if number:
            time.sleep(every_s)
        for acks in levels:
            with Screen(f"latency of {topic}", chart=False) as screen:
                run = _measure(cluster, topic, acks, count, shape, settings, screen, quiet=True)
            found = run.end_to_end
            figures = {
                f"p{q}_ms": round(found.percentile_us(q) / 1000, 3) for q in (50, 95, 99)
            } | {"max_ms": round(found.percentile_us(100) / 1000, 3)}  # fmt: skip
            now = datetime.now(UTC).isoformat(timespec="seconds")
            if json:
                print_json({"time": now, "acks": acks, "records": count, **figures}, lines=True)
            else:
                print_line("\t".join([now, acks, *(f"{value:g}" for value in figures.values())]))


class _Shape:
    """The layout of every record; the letters differ."""

    def __init__(self, size: int, key_size: int, headers: int, header_key_size: int, header_size: int) -> None:
        self._random = Random(0)
        self.size = size
        self._key_size = key_size
        self._headers = headers
        self._header_key_size = header_key_size
        self._header_size = header_size

    def record(self) -> dict[str, Any]:
        made: dict[str, Any] = {"value": self._letters(self.size)}
        if self._key_size:
            made["key"] = self._letters(self._key_size)
        if self._headers:
            made["headers"] = [
                (
                    self._letters(self._header_key_size).decode(),
                    None if self._header_size < 0 else self._letters(self._header_size),
                )
                for _ in range(self._headers)
            ]
        return made

    def _letters(self, size: int) -> bytes:
        return bytes(self._random.choices(LETTERS, k=size))


class _Run:
    def __init__(self) -> None:
        self.end_to_end = Histogram()
        self.acknowledged = Histogram()


def _measure(
    cluster: Cluster,
    topic: str,
    acks: str,
    count: int,
    shape: _Shape,
    settings: dict[str, str],
    screen: Screen,
    *,
    quiet: bool,
) -> _Run:
    producer = cluster.producer({"linger.ms": 0, "acks": acks, **_of("producer", settings)})
    # The broker answers a fetch as soon as there is a record; so a fetch that waits costs no time.
    consumer = cluster.consumer({"fetch.min.bytes": 1, "fetch.error.backoff.ms": 1, **_of("consumer", settings)})
    run = _Run()
    try:
        _seek_to_end(cluster, consumer, topic)
        tick_s, tick = time.monotonic(), Histogram()
        for number in range(count):
            acknowledged_us, received_us = _exchange(cluster, producer, consumer, topic, shape.record())
            run.acknowledged.record(acknowledged_us)
            run.end_to_end.record(received_us)
            tick.record(received_us)
            if number % PROGRESS_RECORDS == 0 and not quiet:
                screen.say(f"{number}\t{received_us / 1000}")
            now_s = time.monotonic()
            if now_s - tick_s >= TICK_S:
                screen.point(tick.count / (now_s - tick_s), tick.percentile_us(99) / 1000)
                tick_s, tick = now_s, Histogram()
    finally:
        consumer.close()
    return run


def _exchange(
    cluster: Cluster, producer: Producer, consumer: Consumer, topic: str, record: dict[str, Any]
) -> tuple[int, int]:
    """Send one record and read it: microseconds until it was acknowledged, and until it was read."""
    acknowledged: list[float] = []
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        acknowledged.append(time.perf_counter())
        if error is not None:
            failed.append(error)

    began_s = time.perf_counter()
    producer.produce(topic, on_delivery=delivered, **record)
    while not acknowledged:
        producer.poll(POLL_S)
        cluster.fail_fast()
    if failed:
        raise cluster.failure(failed[0], f"write to {topic}")
    while True:
        message = consumer.poll(POLL_S)
        received_s = time.perf_counter()
        if message is not None and message.error() is None:
            break
        if received_s - began_s > WAIT_S:
            raise CliError(f"a record was written to {topic} but not read within {WAIT_S:g} s", exit_codes.TIMED_OUT)
    if (message.value() or b"") != record["value"]:
        raise CliError(
            f"a record that was read from {topic} is not the one that was sent: someone else writes to it",
            exit_codes.FAILED,
            "give the test a topic of its own",
        )
    return round((acknowledged[0] - began_s) * 1_000_000), round((received_s - began_s) * 1_000_000)


def _seek_to_end(cluster: Cluster, consumer: Consumer, topic: str) -> None:
    from penstock.cli.library import KafkaException, TopicPartition

    try:
        places = []
        for partition in range(cluster.partition_count(topic)):
            place = TopicPartition(topic, partition)
            _, place.offset = consumer.get_watermark_offsets(place, timeout=cluster.timeout_s)
            places.append(place)
        consumer.assign(places)
        consumer.poll(POLL_S)
    except KafkaException as error:
        raise cluster.failure(error.args[0], f"find the end of {topic}") from None


def _copies(cluster: Cluster, topic: str, replication_factor: int, *, quiet: bool) -> int:
    """How many copies the topic has; it is created if it is not there."""
    from penstock.cli.library import NewTopic, TopicCollection

    def look() -> int:
        futures = cluster.admin.describe_topics(TopicCollection([topic]), request_timeout=cluster.timeout_s)
        partitions = cluster.wait(futures[topic], f"find the topic {topic}").partitions
        return min(len(partition.replicas) for partition in partitions)

    try:
        return look()
    except CliError as error:
        if error.code != exit_codes.NOT_FOUND:
            raise
    if not quiet:
        print_line(
            f'Topic "{topic}" does not exist. Will create topic with 1 partition(s) and replication factor = '
            f"{replication_factor}"
        )
    futures = cluster.admin.create_topics([NewTopic(topic, 1, replication_factor)], request_timeout=cluster.timeout_s)
    cluster.wait(futures[topic], f"create the topic {topic}")
    return replication_factor


def _levels(text: str) -> list[str]:
    levels = [level.strip().lower() for level in text.split(",") if level.strip()]
    levels = ["all" if level == "-1" else level for level in levels]
    if not levels or any(level not in ACKS for level in levels):
        raise CliError(f"--producer-acks {text}: it is 0, 1 or all, or several of them", exit_codes.USAGE)
    return list(dict.fromkeys(levels))


PRODUCERS_OWN = ("linger.ms", "acks", "compression.type", "batch.size", "enable.idempotence", "partitioner")


def _of(kind: str, settings: dict[str, str]) -> dict[str, str]:
    """Settings that only a producer knows are not for the consumer."""
    if kind == "producer":
        return settings
    return {name: value for name, value in settings.items() if name not in PRODUCERS_OWN}


# ---- what is told


def _milliseconds(latencies: Histogram) -> dict[str, float]:
    p50, p95, p99, p999 = latencies.percentiles_us(PERCENTS)
    return {
        "mean": round(latencies.mean_us / 1000, 3),
        "p50": p50 / 1000,
        "p95": p95 / 1000,
        "p99": p99 / 1000,
        "p99.9": p999 / 1000,
        "max": latencies.max_us / 1000,
    }


def _latency_rows(runs: dict[str, _Run]) -> tuple[list[str], list[list[str]]]:
    head = ["acks", "measure", "mean ms", "p50 ms", "p95 ms", "p99 ms", "p99.9 ms", "max ms"]
    rows = []
    for acks, run in runs.items():
        for name, latencies in (("acknowledged", run.acknowledged), ("end to end", run.end_to_end)):
            rows.append([acks, name, *(f"{value:.2f}" for value in _milliseconds(latencies).values())])
    return head, rows


def _verdict_rows(found: list[Verdict]) -> tuple[list[str], list[list[str]]]:
    head = ["class", "measure", "limit ms", "measured ms", "verdict", "note"]
    rows = [
        [
            one.subject,
            one.measure,
            f"{one.limit_ms:g}",
            "-" if one.measured_ms is None else f"{one.measured_ms:.2f}",
            one.word,
            one.note,
        ]
        for one in found
    ]
    return head, rows


def _result(topic: str, copies: int, runs: dict[str, _Run], found: list[Verdict]) -> dict[str, object]:
    return {
        "topic": topic,
        "replication_factor": copies,
        "acks": {
            acks: {
                "records": run.end_to_end.count,
                "acknowledged_ms": _milliseconds(run.acknowledged),
                "end_to_end_ms": _milliseconds(run.end_to_end),
            }
            for acks, run in runs.items()
        },
        "classes": [
            {
                "class": one.subject,
                "measure": one.measure,
                "limit_ms": one.limit_ms,
                "measured_ms": one.measured_ms,
                "verdict": one.word,
                "note": one.note,
            }
            for one in found
        ],
    }
