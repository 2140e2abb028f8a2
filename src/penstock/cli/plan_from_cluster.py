"""A spec for `penstock plan cluster` from a cluster that runs: its topics, sizes and rates.

Rates are watched for a few seconds. Where the records that are stored tell of a higher average than that, it is taken.
What a cluster does not tell (network, disk speed, prices) stays for the user to fill in.
"""

from __future__ import annotations

import json
import time
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from penstock import client
from penstock.cli import exit_codes
from penstock.cli.connection import Cluster
from penstock.cli.errors import CliError
from penstock.cli.output import note, plural
from penstock.cli.protocol import reach
from penstock.cli.sampling import topics_of_groups
from penstock.client import EARLIEST, LATEST
from penstock.ops.cluster_port import ProtocolPort

if TYPE_CHECKING:
    from penstock.balance import ClusterModel, Partition

DAY_MS = 86_400_000
FOREVER_DAYS = 365.0
"""Taken for topics without a limit of time."""


class TopicFacts(NamedTuple):
    """What was found out about one topic."""

    name: str
    partitions: int
    replication_factor: int
    records: int
    stored_bytes: int
    """One copy."""
    watched_per_s: float
    retention_days: float
    kept_forever: bool
    groups: int


def spec_of(
    bootstrap_server: str,
    command_config: Path | None,
    timeout_s: float,
    seconds: float,
    peak_factor: float,
    *,
    base: str,
    origin: str,
) -> str:
    """`base` (hardware, prices) with the topics of the cluster as TOML."""
    try:
        has_topics = "topics" in tomllib.loads(base)
    except tomllib.TOMLDecodeError as error:
        raise CliError(f"{origin} is not valid TOML: {error}", exit_codes.USAGE) from None
    if has_topics:
        raise CliError(
            f"{origin} has topics of its own: with --from-cluster they come from the cluster", exit_codes.USAGE
        )
    cluster = Cluster(bootstrap_server, command_config, timeout_s)
    model, facts = _observe(cluster, seconds)
    lines = [base.rstrip() or "\n".join(_hardware(model)), ""]
    lines.append(f"# Topics of {bootstrap_server}, watched for {seconds:g} s; peak = {peak_factor:g} × average.")
    lines.append("# Sizes are those on disk, so compression is in them already.")
    found = 0
    for topic in facts:
        if not topic.records:
            continue
        found += 1
        lines += ["", *topic_lines(topic, peak_factor)]
    if not found:
        raise CliError(f"no topic of {bootstrap_server} has records, so there is no load to plan for")
    return "\n".join(lines) + "\n"


def topic_lines(topic: TopicFacts, peak_factor: float) -> Iterator[str]:
    """One table of the spec. Pure."""
    over_retention = topic.records / (topic.retention_days * DAY_MS / 1000)
    average = max(topic.watched_per_s, over_retention)
    yield "[[topics]]"
    # JSON writes a text as TOML does, so that a name cannot end the string.
    yield f"name = {json.dumps(topic.name)}"
    yield f"average_messages_per_s = {average:.6g}"
    yield f"peak_messages_per_s = {average * peak_factor:.6g}"
    yield f"message_bytes = {max(1.0, topic.stored_bytes / topic.records):.6g}"
    yield f"retention_days = {topic.retention_days:.6g}" + (
        f"  # kept without a limit of time; {FOREVER_DAYS:g} days are assumed" if topic.kept_forever else ""
    )
    yield f"replication_factor = {topic.replication_factor}"
    yield f"groups = {topic.groups}"
    yield f"partitions = {topic.partitions}"


def _hardware(model: ClusterModel) -> Iterator[str]:
    zones = len({broker.rack for broker in model.brokers.values() if broker.rack}) or 1
    sizes = [broker.total_bytes for broker in model.brokers.values() if broker.total_bytes]
    yield "# What the cluster does not tell has no value here: fill it in, then plan with this file."
    yield "[cluster]"
    yield f"zones = {zones}"
    yield "# per_partition_mb_s =   (measured with `penstock perf produce`)"
    yield "[broker]"
    yield "# network_mb_s ="
    yield "# disk_write_mb_s ="
    yield f"disk_gb = {min(sizes) / 1e9:.6g}" if sizes else "# disk_gb ="
    yield f"count = {len(model.brokers)}"


def _observe(cluster: Cluster, seconds: float) -> tuple[ClusterModel, list[TopicFacts]]:
    with reach(cluster, "look at the cluster") as known:
        port = ProtocolPort(known, cluster.timeout_s)
        model = port.observe(disks=True)
        parts_of: dict[str, list[Partition]] = {}
        for one in model.partitions:
            if not one.topic.startswith("__"):
                parts_of.setdefault(one.topic, []).append(one)
        note(f"watching {plural(len(parts_of), 'topic')} for {seconds:g} s")
        # Partitions without a leader cannot be asked.
        led = [(one.topic, one.index) for parts in parts_of.values() for one in parts if one.leader >= 0]
        first, begin = _offsets(known, led, EARLIEST), _offsets(known, led, LATEST)
        began_s = time.monotonic()
        port.pause(seconds)
        end = _offsets(known, led, LATEST)
        passed_s = time.monotonic() - began_s
    readers = _readers(cluster)
    found = []
    for name, parts in sorted(parts_of.items()):
        keys = [key for one in parts if (key := (name, one.index)) in end]
        records = sum(max(0, end[key] - first[key]) for key in keys)
        written = sum(max(0, end[key] - begin[key]) for key in keys)
        days, forever = _retention(cluster, name) if records else (FOREVER_DAYS, True)
        found.append(
            TopicFacts(
                name=name,
                partitions=len(parts),
                replication_factor=max(len(one.target) for one in parts),
                records=records,
                stored_bytes=sum(one.size_bytes for one in parts),
                watched_per_s=written / passed_s,
                retention_days=days,
                kept_forever=forever,
                groups=readers.get(name, 0),
            )
        )
    return model, found


def _offsets(known: client.Cluster, keys: list[tuple[str, int]], when: int) -> dict[tuple[str, int], int]:
    found = known.list_offsets(dict.fromkeys(keys, when))
    return {(key.topic, key.partition): one.offset for key, one in found.items()}


def _readers(cluster: Cluster) -> Mapping[str, int]:
    counts: dict[str, int] = {}
    for topics in topics_of_groups(cluster).values():
        for topic in topics:
            counts[topic] = counts.get(topic, 0) + 1
    return counts


def _retention(cluster: Cluster, topic: str) -> tuple[float, bool]:
    from penstock.cli.configs import described_configs

    entry = described_configs(cluster, "topic", topic).get("retention.ms")
    milliseconds = int(entry.value) if entry is not None and entry.value is not None else -1
    forever = milliseconds <= 0 or milliseconds > FOREVER_DAYS * DAY_MS
    return (FOREVER_DAYS, True) if forever else (milliseconds / DAY_MS, False)
