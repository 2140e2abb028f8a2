"""`penstock perf codecs`: what each codec makes of your own data, and which one to take."""

from __future__ import annotations

import json as json_format
import sys
import time
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli import exit_codes
from penstock.cli.connection import Cluster
from penstock.cli.errors import CliError
from penstock.cli.options import (
    DEFAULT_BOOTSTRAP_SERVER,
    DEFAULT_TIMEOUT_S,
    BootstrapServer,
    CommandConfig,
    Json,
    Timeout,
    examples,
)
from penstock.cli.output import note, plural, print_json, print_line, print_table, size_of
from penstock.perf.codecs import (
    BATCH_BYTES,
    CANDIDATES,
    ENOUGH_S,
    MEGABYTE,
    Advice,
    Clocks,
    Measured,
    Situation,
    advise,
    batches,
    measure,
)

KeyAndValue = tuple[bytes | None, bytes | None]

SAMPLE_MB_DEFAULT = 8.0
FETCH_RECORDS = 1_000
FETCH_TIMEOUT_S = 0.5

EXAMPLES = examples(
    ("penstock perf codecs events.log", "a record per line"),
    ("penstock perf codecs orders", "the newest records of the topic orders"),
    ("penstock perf codecs image.raw --format raw --record-size 4096", "any file, cut into records"),
    ("penstock perf codecs orders --batch-size 131072 --network-mbit 100 --json", "larger batches, a slower link"),
)


class Format(StrEnum):
    LINES = "lines"
    JSON = "json"
    RAW = "raw"


def codecs(
    source: Annotated[
        str, typer.Argument(metavar="FILE|TOPIC", help="Your data: a file if there is one of that name, else a topic.")
    ],
    format_: Annotated[
        Format,
        typer.Option("--format", "-f", help="How a file is split: by line, by JSON value, or by a number of bytes."),
    ] = Format.LINES,
    record_size: Annotated[
        int, typer.Option("--record-size", min=1, help="With --format raw: the size of a record, in bytes.")
    ] = 1024,
    batch_size: Annotated[
        int, typer.Option("--batch-size", min=100, help="Bytes of a batch: the batch.size of your producers.")
    ] = BATCH_BYTES,
    sample_mb: Annotated[
        float, typer.Option("--sample-mb", min=0.01, max=1000, help="How much of the data to take, in megabytes.")
    ] = SAMPLE_MB_DEFAULT,
    network_mbit: Annotated[
        float, typer.Option("--network-mbit", min=0.1, help="The link between clients and brokers, in Mbit/s.")
    ] = 1000.0,
    replication_factor: Annotated[int, typer.Option("--replication-factor", min=1, help="Copies of the topic.")] = 3,
    consumers: Annotated[int, typer.Option("--consumers", min=0, help="How many groups read the topic.")] = 1,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.0, help="How long to pack, and to unpack, with each codec at least.")
    ] = ENOUGH_S,
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Compare codecs on your data by size, speed and processor time, and recommend one."""
    limit_bytes = round(sample_mb * MEGABYTE)
    path = Path(source)
    if path.is_file():
        records = list(_bounded(_of_file(path, format_, record_size, limit_bytes), limit_bytes))
        origin = "file"
    else:
        cluster = Cluster(bootstrap_server, command_config, timeout)
        records = list(_of_topic(cluster, source, limit_bytes))
        origin = "topic"
    plain = list(batches(records, batch_size))
    if not plain:
        raise CliError(f"{source} has no records to compress", exit_codes.FAILED)
    situation = Situation(network_mbit, replication_factor, consumers)
    clocks = Clocks(time.perf_counter, time.process_time)
    found = []
    for number, candidate in enumerate(CANDIDATES):
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[K{candidate.name} ({number + 1} of {len(CANDIDATES)})")
            sys.stderr.flush()
        found.append(measure(candidate, plain, clocks, seconds))
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
    advice = advise(found, situation)
    if json:
        print_json(_result(source, origin, len(records), len(plain), found, advice))
        return
    size = sum(map(len, plain))
    held = f"{plural(len(records), 'record')} of the {origin} {source} ({size_of(size)})"
    note(f"{held} in {plural(len(plain), 'batch', 'batches')}")
    print_table("Codecs on your data", *_rows(found))
    print_line("")
    for one in advice:
        print_line(f"{one.case}: {one.candidate.settings}")
        print_line(f"    {one.reason}")


# ---- where records come from


def _bounded(records: Iterator[KeyAndValue], limit_bytes: int) -> Iterator[KeyAndValue]:
    taken = 0
    for key, value in records:
        yield key, value
        taken += len(key or b"") + len(value or b"")
        if taken >= limit_bytes:
            return


def _of_file(path: Path, form: Format, record_size: int, limit_bytes: int) -> Iterator[KeyAndValue]:
    try:
        if form is Format.JSON:
            yield from _of_json(path, limit_bytes)
            return
        with path.open("rb") as file:
            if form is Format.RAW:
                while piece := file.read(record_size):
                    yield None, piece
            else:
                for line in file:
                    yield None, line.rstrip(b"\r\n")
    except OSError as error:
        raise CliError(f"cannot read {path}: {error.strerror}", exit_codes.USAGE) from None


def _of_json(path: Path, limit_bytes: int) -> Iterator[KeyAndValue]:
    """An array, of which every element is a record, or a value per line."""
    with path.open("rb") as file:
        start = file.read(64).lstrip()
        file.seek(0)
        if start.startswith(b"["):
            # It can only be read as a whole; a file far larger than the sample is not worth the memory.
            text = file.read(16 * limit_bytes + 1)
            if len(text) > 16 * limit_bytes:
                raise CliError(
                    f"{path} is one JSON array of more than {size_of(16 * limit_bytes)}, which must be read whole",
                    exit_codes.USAGE,
                    "write a value per line, or take a larger --sample-mb",
                )
            try:
                values = json_format.loads(text)
            except ValueError as error:
                raise CliError(f"{path} is not JSON: {error}", exit_codes.USAGE) from None
            for value in values:
                yield None, json_format.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
            return
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                json_format.loads(line)
            except ValueError as error:
                raise CliError(f"{path}, line {number}: this is not JSON: {error}", exit_codes.USAGE) from None
            yield None, line.strip()


def _of_topic(cluster: Cluster, topic: str, limit_bytes: int) -> Iterator[KeyAndValue]:
    """The newest records: of each partition the last part, until there is enough or all was read."""
    from penstock.cli.library import KafkaException, TopicPartition

    try:
        partitions = cluster.partition_count(topic)
    except CliError as error:
        if error.code == exit_codes.NOT_FOUND:
            raise CliError(
                f"there is neither a file nor a topic {topic}", error.code, "`penstock topics list` shows the topics"
            ) from None
        raise
    consumer = cluster.consumer({"enable.partition.eof": True})
    try:
        share = max(1, limit_bytes // partitions // 100)
        assigned, ends = [], {}
        for partition in range(partitions):
            first, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=cluster.timeout_s)
            if first < end:
                assigned.append(TopicPartition(topic, partition, max(first, end - share)))
                ends[partition] = end
        consumer.assign(assigned)
        taken = 0
        deadline_s = time.monotonic() + cluster.timeout_s
        while ends and taken < limit_bytes and time.monotonic() < deadline_s:
            for message in consumer.consume(FETCH_RECORDS, FETCH_TIMEOUT_S):
                place, offset = message.partition() or 0, message.offset() or 0
                end = ends.get(place, 0)
                if message.error() is not None or offset >= end - 1:
                    ends.pop(place, None)
                if message.error() is None and offset < end and taken < limit_bytes:
                    key, value = message.key(), message.value()
                    taken += len(key or b"") + len(value or b"")
                    yield _bytes(key), _bytes(value)
    except KafkaException as error:
        raise cluster.failure(error.args[0], f"read the newest records of {topic}") from None
    finally:
        consumer.close()


def _bytes(data: str | bytes | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data


# ---- what is told


def _rows(found: list[Measured]) -> tuple[list[str], list[list[str]]]:
    head = ["codec", "ratio", "saves", "compress MB/s", "decompress MB/s", "CPU ms/MB in", "CPU ms/MB out"]
    rows = [
        [
            one.candidate.name,
            f"{one.ratio:.2f}",
            f"{one.saving:.0%}",
            f"{one.compress_mb_s:.0f}",
            f"{one.decompress_mb_s:.0f}",
            f"{one.compress_cpu_ms_per_mb:.2f}",
            f"{one.decompress_cpu_ms_per_mb:.2f}",
        ]
        for one in found
    ]
    return head, rows


def _result(
    source: str, origin: str, records: int, count: int, found: list[Measured], advice: list[Advice]
) -> dict[str, object]:
    return {
        "source": source,
        "kind": origin,
        "records": records,
        "batches": count,
        "codecs": [
            {
                "codec": one.candidate.codec.name.lower(),
                "level": one.candidate.level,
                "plain_bytes": one.plain_bytes,
                "packed_bytes": one.packed_bytes,
                "ratio": round(one.ratio, 4),
                "compress_mb_per_second": round(one.compress_mb_s, 2),
                "decompress_mb_per_second": round(one.decompress_mb_s, 2),
                "compress_cpu_ms_per_mb": round(one.compress_cpu_ms_per_mb, 4),
                "decompress_cpu_ms_per_mb": round(one.decompress_cpu_ms_per_mb, 4),
            }
            for one in found
        ],
        "advice": [{"case": one.case, "settings": one.candidate.settings, "reason": one.reason} for one in advice],
        "recommendation": advice[0].candidate.settings,
    }
