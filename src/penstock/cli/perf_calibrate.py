"""`penstock perf calibrate`: unit costs of this cluster, for the planner."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import exit_codes
from penstock.cli.connection import Cluster
from penstock.cli.errors import CliError
from penstock.cli.monitor import Scrape, parse_endpoints
from penstock.cli.options import (
    DEFAULT_BOOTSTRAP_SERVER,
    DEFAULT_TIMEOUT_S,
    BootstrapServer,
    CommandConfig,
    Json,
    Timeout,
    examples,
)
from penstock.cli.output import Cell, note, print_line, print_table

if TYPE_CHECKING:
    from penstock import client
    from penstock.planning.calibration import Calibration, Measure

EXAMPLES = examples(
    ("penstock perf calibrate", "about a minute; writes calibration.json"),
    ("penstock perf calibrate --scrape 1=127.0.0.1:9292", "with CPU and memory of the brokers"),
    ("penstock perf calibrate --disk /var/lib/penstock", "with the limit of the disk under that directory"),
    ("penstock plan partitions --peak-mb-s 100 --calibration calibration.json", "what it is for"),
)
BATCHES = (1_000, 16_000, 64_000, 500_000)
REFERENCE_BATCH = 64_000
PARTITIONS_TRIED = 200
CONNECTIONS_TRIED = 100
SETTLE_S = 1.0
DISK_BYTES = 256 * 1024 * 1024
READ_BYTES = 256 * 1024 * 1024

CalibrationFile = Annotated[
    Path | None,
    typer.Option("--calibration", metavar="FILE", help="Figures that `penstock perf calibrate` measured."),
]


def calibrate(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Write the calibration there.")] = Path(
        "calibration.json"
    ),
    seconds: Annotated[
        float, typer.Option(metavar="N", min=0.2, max=60, help="Measure each case for this long.")
    ] = 3.0,
    scrape: Scrape = [],  # noqa: B006
    disk: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Measure the disk under this directory of this machine.")
    ] = None,
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Measure what a partition takes, what a gigabyte costs, and limits. Loads the cluster fully meanwhile."""
    from penstock.cli.protocol import reach
    from penstock.planning.calibration import Calibration

    if disk is not None and not disk.is_dir():
        raise CliError(f"--disk {disk}: there is no such directory", exit_codes.USAGE)
    endpoints = list(parse_endpoints(scrape, "--scrape", numbers=True).values())
    cluster = Cluster(bootstrap_server, command_config, timeout)
    measures: dict[str, Measure] = {}
    missing: dict[str, str] = {
        "tls_cost": "calibrate through a TLS listener and compare",
        "transaction_cost": "not measured by this version",
    }
    with reach(cluster, "calibrate") as known:
        known.existing_topics(["__consumer_offsets"])
        brokers = max(1, len(known.broker_ids()))
        _throughputs(known, seconds, endpoints, brokers, measures, missing)
        _memory(known, endpoints, brokers, measures, missing)
    if disk is not None:
        _disk(disk, measures)
    else:
        missing["disk_write_mb_s"] = "give --disk DIR on the broker's machine"
    found = Calibration(
        machine=this_machine(),
        target=f"{brokers} brokers at {bootstrap_server}",
        taken_at=datetime.now(UTC).isoformat(timespec="seconds"),
        measures=measures,
        missing=missing,
    )
    try:
        output.write_text(found.to_json(), encoding="utf-8")
    except OSError as error:
        raise CliError(f"cannot write {output}: {error.strerror}", exit_codes.FAILED) from None
    _show(found, output, json=json)


def _throughputs(
    cluster: client.Cluster,
    seconds: float,
    endpoints: list[str],
    brokers: int,
    measures: dict[str, Measure],
    missing: dict[str, str],
) -> None:
    from penstock.ops.measuring import read_throughput, scratch_topic, write_throughput
    from penstock.planning.calibration import PARTITION_MB_S, Measure
    from penstock.wire.compression import Codec

    cases = [(size, Codec.NONE) for size in BATCHES] + [(REFERENCE_BATCH, one) for one in (Codec.LZ4, Codec.ZSTD)]
    copies = min(3, brokers)
    with scratch_topic(cluster, 1, copies) as topic:
        for number, (size, codec) in enumerate(cases, 1):
            name = f"{size // 1000}kb_{codec.name.lower()}"
            note(f"{number}/{len(cases)}: batches of {size // 1000} KB, {codec.name.lower()}")
            found = write_throughput(
                cluster, topic, batch_bytes=size, codec=codec, seconds=seconds, cpu_s=_cpu_of(endpoints)
            )
            how = f"one partition, {copies} replicas, acks=all, {seconds:g} s"
            measures[f"write_mb_s.{name}"] = Measure(value=round(found.mb_s, 2), unit="MB/s", how=how)
            if found.cpu_s_per_gb is not None:
                how = "CPU time of all scraped brokers; records before compression"
                measures[f"cpu_s_per_gb.{name}"] = Measure(value=round(found.cpu_s_per_gb, 3), unit="s/GB", how=how)
            if (size, codec) == (REFERENCE_BATCH, Codec.NONE):
                how = "batches of 64 KB, uncompressed, " + measures[f"write_mb_s.{name}"].how
                measures[PARTITION_MB_S] = Measure(value=round(found.mb_s, 2), unit="MB/s", how=how)
        mb_s = read_throughput(cluster, topic, READ_BYTES)
        measures["read_mb_s"] = Measure(value=round(mb_s, 2), unit="MB/s", how="one reader, from the page cache")
    if not endpoints:
        missing["cpu_s_per_gb"] = "give the brokers' endpoints with --scrape"
    if copies == 1:
        missing["replication_cost"] = "the cluster has one broker"
        return
    with scratch_topic(cluster, 1, 1) as topic:
        alone = write_throughput(cluster, topic, batch_bytes=REFERENCE_BATCH, codec=Codec.NONE, seconds=seconds)
    share = max(0.0, 1 - measures[PARTITION_MB_S].value / alone.mb_s) if alone.mb_s else 0.0
    how = f"throughput of one partition with {copies} replicas against 1, batches of 64 KB"
    measures["replication_cost"] = Measure(value=round(share, 3), unit="share", how=how)


def _memory(
    cluster: client.Cluster, endpoints: list[str], brokers: int, measures: dict[str, Measure], missing: dict[str, str]
) -> None:
    from penstock.client import Connection
    from penstock.ops.measuring import scratch_topic

    if not endpoints:
        missing["memory"] = "give the brokers' endpoints with --scrape"
        return
    note("memory of partitions and connections")
    before = _sum_of(endpoints, "process_resident_memory_bytes")
    with scratch_topic(cluster, PARTITIONS_TRIED, 1):
        time.sleep(SETTLE_S)
        grown = _sum_of(endpoints, "process_resident_memory_bytes")
        _per(measures, "memory_per_partition_bytes", before, grown, PARTITIONS_TRIED, "empty partitions")
    address = cluster.any_broker().address
    before = _sum_of(endpoints, "process_resident_memory_bytes")
    held = [Connection(cluster.settings, address) for _ in range(CONNECTIONS_TRIED)]
    try:
        grown = _sum_of(endpoints, "process_resident_memory_bytes")
        _per(measures, "memory_per_connection_bytes", before, grown, CONNECTIONS_TRIED, "idle connections")
    finally:
        for one in held:
            one.close()
    if "memory_per_partition_bytes" not in measures:
        missing["memory"] = "the endpoints do not tell process_resident_memory_bytes"


def _per(
    measures: dict[str, Measure], name: str, before: float | None, after: float | None, count: int, what: str
) -> None:
    from penstock.planning.calibration import Measure

    if before is not None and after is not None:
        value = max(0.0, (after - before) / count)
        measures[name] = Measure(value=round(value), unit="bytes", how=f"growth of resident memory by {count} {what}")


def _disk(directory: Path, measures: dict[str, Measure]) -> None:
    from penstock.planning.calibration import Measure

    note(f"the disk under {directory}")
    path = directory / f".penstock-calibration-{os.getpid()}"
    piece = os.urandom(1024 * 1024)
    try:
        with path.open("wb", buffering=0) as file:
            began_s = time.monotonic()
            for _ in range(DISK_BYTES // len(piece)):
                file.write(piece)
            os.fsync(file.fileno())
            took_s = time.monotonic() - began_s
        how = f"{DISK_BYTES // 1024**2} MiB written in order, then synced"
        measures["disk_write_mb_s"] = Measure(value=round(DISK_BYTES / took_s / 1e6, 1), unit="MB/s", how=how)
    except OSError as error:
        raise CliError(f"cannot write to {directory}: {error.strerror}", exit_codes.FAILED) from None
    finally:
        path.unlink(missing_ok=True)


def _cpu_of(endpoints: list[str]) -> Callable[[], float | None]:
    return lambda: _sum_of(endpoints, "process_cpu_seconds_total") if endpoints else None


def _sum_of(endpoints: list[str], name: str) -> float | None:
    """The sum of a figure over the brokers; None if one of them does not tell it."""
    from penstock.monitor.scraping import ScrapeFailed, scrape

    total = 0.0
    for address in endpoints:
        try:
            found = scrape(address, [name])
        except ScrapeFailed as error:
            raise CliError(str(error), exit_codes.UNREACHABLE, "check --scrape") from None
        if name not in found:
            return None
        total += found[name]
    return total


def this_machine() -> Mapping[str, str]:
    """What kind of machine this is. A calibration holds for machines of the same kind."""
    model = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    return {"processor": model, "cores": str(os.cpu_count() or 1)}


def load_calibration(path: Path | None) -> Calibration | None:
    """The file that --calibration names, with a warning if it was measured on another kind of machine."""
    from penstock.cli.plan_answers import plan_errors, read_text
    from penstock.planning.calibration import read_calibration

    if path is None:
        return None
    with plan_errors():
        found = read_calibration(read_text(path), str(path))
    for difference in found.differences(this_machine()):
        note(f"warning: {path} was measured on another kind of machine: {difference}")
    return found


def _show(found: Calibration, output: Path, *, json: bool) -> None:
    if json:
        print_line(found.to_json().rstrip("\n"))
        return
    rows: list[list[Cell]] = [[name, f"{one.value:,g}", one.unit, one.how] for name, one in found.measures.items()]
    print_table("", ("figure", "value", "unit", "how"), rows)
    for name, why in found.missing.items():
        note(f"not measured: {name}: {why}")
    note(f"written to {output}")
