"""The packages of Penstock: what each is for, and which others it may import.

`tests/test_architecture.py` enforces this table, and `tools/generate_docs.py` writes it into CONTRIBUTING.
"""

from __future__ import annotations

from typing import NamedTuple


class Package(NamedTuple):
    name: str
    what: str
    may_import: frozenset[str]


def _package(name: str, what: str, *may_import: str) -> Package:
    return Package(name, what, frozenset(may_import))


ENGINE = (
    _package("runtime", "the seam to the world: clock, disk, network, threads"),
    _package("kernel", "loops over bytes, compiled by Cython where there is a C compiler (`make setup` compiles them)"),
    _package("wire", "Kafka's protocol: messages, record batches, the table of served APIs", "kernel"),
    _package("config", "Kafka's properties: each is declared once", "wire"),
    _package("acls", "access control lists: rules, filters and what they decide; pure", "wire"),
    _package("telemetry", "metrics, Prometheus' text format, a small HTTP server", "runtime"),
    _package("log", "one partition's log on disk", "wire", "runtime"),
    _package("raft", "the quorum that agrees on metadata; pure", "wire"),
    _package(
        "metadata", "the cluster's metadata and the controller's decisions; pure", "acls", "wire", "config", "raft"
    ),
    _package("replication", "leader and follower state of a partition; pure"),
    _package("coordinators", "consumer groups and transactions on a generic host; pure", "wire", "config", "metadata"),
    _package(
        "broker",
        "the shell around the cores: connections, one module per API, partitions, quorum",
        *("wire", "config", "log", "raft", "metadata", "replication", "coordinators", "runtime", "kernel", "telemetry"),
        "acls",
    ),
)
REHEARSAL = (
    _package(
        "sim",
        "whole clusters in virtual time, with faults on disk and network",
        *("runtime", "broker", "config", "log", "metadata", "raft", "wire"),
    ),
    _package(
        "testing",
        "real brokers in a test process, for users' tests too",
        *("runtime", "broker", "config", "metadata", "raft", "wire"),
    ),
)
PLATFORM = (
    _package("client", "producers, consumers and processors for any Kafka cluster", "wire", "config", "telemetry"),
    _package("lag", "how far consumers are behind, and what that means; pure", "wire"),
    _package("balance", "where partitions should be, and moving them there; pure"),
    _package("ops", "operating any Kafka cluster through its protocol", "acls", "balance", "client", "wire"),
    _package("planning", "capacity, cost and settings, computed from rules that are data; pure"),
    _package("forecasting", "load and resources to come, from history; pure", "planning"),
    _package(
        "monitor",
        "watches a cluster through its protocol, keeps figures in topics",
        *("client", "lag", "telemetry", "wire"),
    ),
    _package(
        "alerts",
        "rules, alerts with hysteresis and silences, Prometheus rules, a dashboard",
        *("client", "monitor", "planning", "telemetry", "wire"),
    ),
    _package(
        "advise",
        "what to do now, with evidence and the command",
        *("client", "monitor", "perf", "planning", "telemetry", "wire"),
    ),
    _package("perf", "what performance tests count and report; pure", "wire"),
    _package("chaos", "breaks clusters under load and accounts for every record", "client", "wire"),
    _package(
        "cli",
        "the `penstock` command; a few commands are the engine itself (`ENTRY_POINTS`)",
        *("wire", "config", "kernel", "lag", "client", "balance", "spark", "pipeline", "demo", "chaos", "perf", "ops"),
        *("planning", "monitor", "forecasting", "alerts", "advise", "telemetry", "acls"),
    ),
)
PIPELINE = (
    _package("arrow", "record batches to Arrow", "wire"),
    _package("spark", "the Spark data source and sink", "client", "arrow", "wire", "telemetry"),
    _package(
        "pipeline",
        "declared pipelines and tables on Spark",
        *("spark", "client", "arrow", "wire", "telemetry", "forecasting", "monitor"),
    ),
    _package("demo", "the web shop of `make run`", "pipeline", "spark", "client", "monitor"),
)
LAYERS = {"engine": ENGINE, "rehearsal": REHEARSAL, "platform": PLATFORM, "pipeline": PIPELINE}
PACKAGES = tuple(package for layer in LAYERS.values() for package in layer)

ENTRY_POINTS = {
    "cli/server.py": {"broker", "runtime", "log"},
    "cli/fleet.py": {"runtime"},
    "cli/security_files.py": {"broker", "metadata", "raft", "runtime"},
    "cli/security_probe.py": {"runtime"},
    "cli/log.py": {"log", "runtime"},
    "cli/metadata.py": {"broker", "metadata", "log", "runtime"},
}
"""Modules of the platform that run or open the engine."""

ROOT_MODULES: dict[str, frozenset[str]] = {
    "__init__.py": frozenset(),
    "__main__.py": frozenset({"cli"}),
    "stop_flag.py": frozenset(),
}
"""Modules beside the packages, which all packages may import."""


def markdown() -> str:
    rows = ["| layer | package | what it is for | may import |", "|---|---|---|---|"]
    for layer, packages in LAYERS.items():
        for package in packages:
            allowed = ", ".join(f"`{name}`" for name in sorted(package.may_import)) or "nothing of ours"
            rows.append(f"| {layer} | `{package.name}` | {package.what} | {allowed} |")
    return "\n".join(rows)
