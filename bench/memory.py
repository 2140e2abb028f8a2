"""`python -m bench.memory`: what a broker takes at most, attacked in each of the ways that cost memory.

Every attack gets a broker of its own with the same topics. Beside its largest resident memory (RSS) stands the bound
that docs/how-to/operations.md gives for it ("Memory"), worked out from the limits of this version. RSS above the bound
is printed in red: then the formula is wrong, or the broker is.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import processes, wire
from bench.fairness import at_it, prepare
from bench.greed import FETCHED_PARTITIONS, KINDS, frame
from penstock.broker import limits
from penstock.broker.net.slices import PLACES
from penstock.broker.service import RECEIVE_BUDGET_BYTES
from penstock.wire.messages.metadata import MetadataRequest
from support.penstock import PenstockServer

RESULTS = Path(__file__).parent / "results" / "memory.json"
MB = 1e6

CONNECTION_BYTES = 16 * 1024
"""A connection with its first buffer, as `python -m bench --cases connections-*` measures it, rounded up."""
SESSION_PARTITION_BYTES = 400
"""What a fetch session remembers of a partition."""
FETCHED_PARTITION_BYTES = 1_000
"""What a partition takes while a large Fetch is served, from its request to its answer."""
OBJECTS_PER_ANSWER_BYTE = 8
"""A large answer takes so much more as objects, before it is encoded, than as bytes."""
ALLOCATOR_BYTES = 64 * 1024 * 1024
"""What the allocator keeps of small objects that were freed."""

GROUP_STATE_BYTES = 100 * 1024 * 1024
SETTINGS = {"commits": {"penstock.group.state.bytes.max": str(GROUP_STATE_BYTES)}}
"""Where the default is more than an attack of some seconds can fill."""

RECEIVING = ("half-produced", "nearly-produced", "half-open")
READING = ("unread-records", "records")
FETCHING = ("fetches", "unread-fetches")
ASKING = (
    "unread-topics",
    "all-topics",
    "named-topics",
    "unknown-topics",
    "list-offsets",
    "offset-fetch",
    "unread-offsets",
    "configs",
)
OTHERS = ("idle", "pipelined-metadata", "sessions", "commits")
ATTACKS = (*RECEIVING, *READING, *FETCHING, *ASKING, *OTHERS)
OBSERVED_AFTER_S = 5.0


@dataclass(frozen=True, slots=True)
class Found:
    attack: str
    before_mb: float
    peak_mb: float
    after_mb: float
    bound_mb: float


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.memory", description=__doc__)
    parser.add_argument("--attacks", default=",".join(ATTACKS), help="with commas between; + puts some together")
    parser.add_argument("--seconds", type=float, default=15, help="for each (default 15)")
    parser.add_argument("--partitions", type=int, default=10_000, help="of the cluster (default 10,000)")
    parser.add_argument("--penstock", help="another penstock than that of this environment")
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args()
    processes.raise_descriptor_limit()
    console = Console()
    command = [given.penstock] if given.penstock else [sys.executable, "-m", "penstock"]
    found = []
    for attack in given.attacks.split(","):
        with PenstockServer(SETTINGS.get(attack, {}), command=command) as broker:
            prepare(broker.bootstrap, given.partitions)
            found.append(under(broker, attack, given.seconds))
        console.print(f"{attack}: {found[-1].peak_mb:,.0f} MB of {found[-1].bound_mb:,.0f} MB", highlight=False)
    given.results.parent.mkdir(parents=True, exist_ok=True)
    report = {"partitions": given.partitions, "seconds": given.seconds, "found": [asdict(each) for each in found]}
    given.results.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    console.print(table(found))


def under(broker: PenstockServer, attack: str, seconds: float, observed_after_s: float = OBSERVED_AFTER_S) -> Found:
    """The memory of a broker under this attack, and for a while after it: what was in sockets is still read then."""
    kinds = attack.split("+")
    before_mb = processes.memory(broker.pid).rss_mb
    with wire.connect(broker.bootstrap) as connection:
        answer_bytes = len(wire.ask(connection, frame(MetadataRequest(topics=None))))
    with at_it(broker.bootstrap, kinds):
        peak_mb = watch(broker.pid, seconds)
    peak_mb = max(peak_mb, watch(broker.pid, observed_after_s))
    bound_mb = before_mb + sum(bound_bytes(kind, answer_bytes) for kind in kinds) / MB
    return Found(attack, before_mb, peak_mb, processes.memory(broker.pid).rss_mb, bound_mb)


def watch(pid: int, seconds: float) -> float:
    """The largest RSS in this time."""
    peak_mb = 0.0
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        peak_mb = max(peak_mb, processes.memory(pid).rss_mb)
        time.sleep(0.05)
    return peak_mb


def bound_bytes(kind: str, answer_bytes: int) -> int:
    """The memory that clients of this kind may cost, by the terms of docs/how-to/operations.md."""
    connections = KINDS[kind].connections
    bound = ALLOCATOR_BYTES + connections * CONNECTION_BYTES
    if kind in RECEIVING:
        bound += RECEIVE_BUDGET_BYTES
    if kind in READING:
        bound += connections * (limits.SEND_CHUNK_BYTES + limits.SEND_AHEAD_OF_READERS_BYTES)
    if kind in ASKING:
        # Requests that wait for their place wait in their receive buffers.
        bound += min(RECEIVE_BUDGET_BYTES, connections * 2 * limits.RECEIVE_BUFFER_KEEP_BYTES)
        bound += limits.ANSWER_BUDGET_BYTES + PLACES * OBJECTS_PER_ANSWER_BYTE * max(answer_bytes, 10_000_000)
    if kind in FETCHING:
        request_bytes = len(KINDS[kind].requests())
        bound += min(RECEIVE_BUDGET_BYTES, connections * max(request_bytes, limits.RECEIVE_BUFFER_KEEP_BYTES))
        bound += limits.ANSWER_BUDGET_BYTES + PLACES * FETCHED_PARTITIONS * FETCHED_PARTITION_BYTES
    if kind == "commits":
        bound += GROUP_STATE_BYTES + connections * 2 * limits.RECEIVE_AHEAD_BYTES_MAX
    if kind == "sessions":
        bound += limits.FETCH_SESSION_PARTITIONS_MAX * SESSION_PARTITION_BYTES
        bound += connections * limits.LARGE_ANSWER_BYTES
    if kind == "pipelined-metadata":
        bound += connections * limits.RECEIVE_AHEAD_BYTES_MAX * 2
    return bound


def table(found: Sequence[Found]) -> Table:
    shown = Table(title="the largest resident memory of a broker under attack, MB")
    shown.add_column("attack", overflow="fold")
    for title in ("before", "most", "after", "bound"):
        shown.add_column(title, justify="right")
    for each in found:
        peak = f"{each.peak_mb:,.0f}" if each.peak_mb <= each.bound_mb else f"[bold red]{each.peak_mb:,.0f}[/]"
        title = KINDS[each.attack].title if each.attack in KINDS else each.attack
        shown.add_row(title, f"{each.before_mb:,.0f}", peak, f"{each.after_mb:,.0f}", f"{each.bound_mb:,.0f}")
    return shown


if __name__ == "__main__":
    main()
