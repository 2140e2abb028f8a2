"""`python -m bench.fairness`: how long a polite client waits beside greedy ones, Penstock beside Apache Kafka.

The polite client asks for one topic's metadata and produces one small record, in turn, each when the one before has
been answered, with a short pause between. Beside it come the greedy clients of `bench.greed`, one kind after the
other, and then several kinds at once. The greedy clients run at low priority, so that on a small machine they do not
keep the polite one from its processor: what it waits for is the broker.

Prints p50, p99 and the longest wait of the polite client, and how much processor time the broker used meanwhile. That
is the same as the wait on a quiet machine, and on a busy one it is the part of it that is the broker's. (Kafka has many
threads, whose time is added up: its processor time can be more than the wait.) A request that has waited for five
seconds is given up, and ends the sample. The ratio is Penstock's p99 divided by
Kafka's; below 1, polite clients of Penstock wait less.

`--quick` takes a few kinds, for a short time each and with few partitions.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import processes, wire
from bench.greed import KINDS, MANY_TOPICS, frame
from bench.model import Side
from bench.topics import create_topics
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from support import apache_kafka
from support.penstock import PenstockServer
from support.server_process import ServerProcess

RESULTS = Path(__file__).parent / "results" / "fairness.json"
P99_TARGET_MS = 50.0
POLITE_TOPIC = "bench-polite"
PAUSE_S = 0.002
PATIENCE_S = 5.0
SETTLE_S = 1.0
QUIET_WITHIN_S = 5.0
TOPIC_PARTITIONS = 100
QUICK_SECONDS = 1.5
QUICK_PARTITIONS = 300
REPORT_WIDTH = 150

NOBODY = "nobody"
TOGETHER = ("pipelined-metadata", "all-topics", "idle", "half-open", "unread-topics", "unread-records", "churn")
"""The mix of the issue that asked for this, and a little more."""
QUICK = (NOBODY, "pipelined-metadata", "all-topics", "fetches", "unread-topics+half-open")


@dataclass(frozen=True, slots=True)
class Waits:
    side: str
    greedy: str
    answers: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    cpu_p50_ms: float
    cpu_p99_ms: float
    cpu_max_ms: float
    broker_cores: float


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.fairness", description=__doc__)
    parser.add_argument("--kinds", default="*", help="kinds of greed, with commas between; + puts some together")
    quick = f"few kinds, {QUICK_SECONDS} s each, {QUICK_PARTITIONS} partitions"
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--no-kafka", action="store_true", help="Penstock alone")
    parser.add_argument("--seconds", type=float, help="for each (default 8)")
    parser.add_argument("--partitions", type=int, help="of the cluster (default 10,000)")
    parser.add_argument("--nice", type=int, help="of the greedy clients (default 15, quick 5; less on a busy machine)")
    parser.add_argument("--penstock", help="another penstock than that of this environment")
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args()
    seconds = given.seconds or (QUICK_SECONDS if given.quick else 8)
    nice = (5 if given.quick else 15) if given.nice is None else given.nice
    partitions = given.partitions or (QUICK_PARTITIONS if given.quick else 10_000)
    every = ",".join(QUICK if given.quick else [NOBODY, *KINDS, "+".join(TOGETHER)])
    mixes = [mix.split("+") for mix in (every if given.kinds == "*" else given.kinds).split(",")]
    processes.raise_descriptor_limit()
    console = Console(width=None if sys.stdout.isatty() else REPORT_WIDTH)
    command = [given.penstock] if given.penstock else [sys.executable, "-m", "penstock"]
    found = []
    with ExitStack() as running:
        brokers: dict[Side, ServerProcess] = {Side.PENSTOCK: running.enter_context(PenstockServer(command=command))}
        if not given.no_kafka and (reason := apache_kafka.available()):
            console.print(f"{reason}\nPenstock runs alone.", highlight=False)
        elif not given.no_kafka:
            brokers[Side.KAFKA] = running.enter_context(apache_kafka.ApacheKafka())
        for broker in brokers.values():
            prepare(broker.bootstrap, partitions)
        for mix in mixes:
            # One after the other, so that what else the machine does meets both.
            for side, broker in brokers.items():
                found.append(beside(side, broker, mix, seconds, nice))
                console.print(line(found[-1]), highlight=False)
    given.results.parent.mkdir(parents=True, exist_ok=True)
    report = {"partitions": partitions, "seconds": seconds, "waits": [asdict(each) for each in found]}
    given.results.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    console.print(table(found))


def prepare(bootstrap: str, partitions: int) -> None:
    create_topics(bootstrap, {POLITE_TOPIC: 1, "bench-filled": 1})
    count = partitions // TOPIC_PARTITIONS
    create_topics(bootstrap, {f"{MANY_TOPICS}-{number}": TOPIC_PARTITIONS for number in range(count)}, 1200)
    fill = wire.produce_frame("bench-filled", 0, bytes(900_000)).request
    with wire.connect(bootstrap) as connection:
        for _ in range(60):
            wire.ask(connection, fill)


def beside(side: Side, broker: ServerProcess, mix: Sequence[str], seconds: float, nice: int) -> Waits:
    """The waits of a polite client while these are at it."""
    kinds = [name for name in mix if name != NOBODY]
    with at_it(broker.bootstrap, kinds, nice), wire.connect(broker.bootstrap) as connection:
        time.sleep(SETTLE_S)
        cpu_s, began_s = processes.cpu_s(broker.pid), time.monotonic()
        waits = polite(connection, broker.pid, seconds)
        took_s = time.monotonic() - began_s
        cores = (processes.cpu_s(broker.pid) - cpu_s) / took_s
    await_quiet(broker)
    wall_ms, cpu_ms = (sorted(column) for column in zip(*waits, strict=True))
    return Waits(
        side=side.value,
        greedy=" + ".join(mix),
        answers=len(waits),
        p50_ms=quantile(wall_ms, 0.5),
        p99_ms=quantile(wall_ms, 0.99),
        max_ms=wall_ms[-1],
        cpu_p50_ms=quantile(cpu_ms, 0.5),
        cpu_p99_ms=quantile(cpu_ms, 0.99),
        cpu_max_ms=cpu_ms[-1],
        broker_cores=cores,
    )


def quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def polite(connection: socket.socket, pid: int, seconds: float) -> list[tuple[float, float]]:
    """How long each request waited for its answer, and the broker's processor time meanwhile, in milliseconds.

    Ends with a request that has waited for `PATIENCE_S`, and counts that as its wait.
    """
    connection.settimeout(PATIENCE_S)
    requests = (
        frame(MetadataRequest(topics=[MetadataRequestTopic(name=POLITE_TOPIC)], allow_auto_topic_creation=False)),
        wire.produce_frame(POLITE_TOPIC, 0, bytes(100)).request,
    )
    waits: list[tuple[float, float]] = []
    end_s = time.monotonic() + seconds
    while True:
        for request in requests:
            asked_s, cpu_s = time.monotonic(), processes.fine_cpu_s(pid)
            if asked_s > end_s and waits:
                return waits
            is_answered = True
            try:
                wire.ask(connection, request)
            except TimeoutError:
                is_answered = False
            waits.append(((time.monotonic() - asked_s) * 1000, (processes.fine_cpu_s(pid) - cpu_s) * 1000))
            if not is_answered:
                return waits
            time.sleep(PAUSE_S)


@contextmanager
def at_it(bootstrap: str, kinds: Sequence[str], nice: int = 0) -> Iterator[None]:
    """While these kinds of greedy clients are at it, each in a process of its own."""
    running: list[subprocess.Popen[str]] = []
    try:
        running += [
            subprocess.Popen(
                ["nice", "-n", str(nice), sys.executable, "-m", "bench.greed", bootstrap, kind],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for kind in kinds
        ]
        for process in running:
            assert process.stdout is not None
            if process.stdout.readline().strip() != "ready":
                raise SystemExit("a greedy client ended before it began")
        yield
    finally:
        for process in running:
            process.communicate("")


def await_quiet(broker: ServerProcess) -> None:
    """Until the broker has worked off what greedy clients left behind, or for so long."""
    end_s = time.monotonic() + QUIET_WITHIN_S
    while time.monotonic() < end_s:
        before_s = processes.cpu_s(broker.pid)
        time.sleep(0.5)
        if processes.cpu_s(broker.pid) - before_s < 0.1:
            return


def line(waits: Waits) -> str:
    wall = f"p50 {waits.p50_ms:.2f} ms, p99 {waits.p99_ms:.2f} ms, longest {waits.max_ms:.1f} ms"
    cpu = f"broker CPU {waits.cpu_p50_ms:.2f}, {waits.cpu_p99_ms:.2f}, {waits.cpu_max_ms:.1f}"
    return f"{waits.side}, {waits.greedy}: {wall}; {cpu}"


def table(found: Sequence[Waits]) -> Table:
    shown = Table(title=f"a polite client beside greedy ones (target: p99 below {P99_TARGET_MS:.0f} ms)")
    shown.add_column("beside", overflow="fold")
    shown.add_column("side")
    for title in ("answers", "p50 ms", "p99 ms", "longest ms", "p99 of CPU ms", "most CPU ms", "cores", "p99 ratio"):
        shown.add_column(title, justify="right")
    for each in found:
        kafka = next((k for k in found if k.greedy == each.greedy and k.side == Side.KAFKA.value), None)
        is_ours = each.side == Side.PENSTOCK.value
        p99 = f"{each.p99_ms:,.2f}" if each.p99_ms < P99_TARGET_MS else f"[bold red]{each.p99_ms:,.2f}[/]"
        title = KINDS[each.greedy].title if each.greedy in KINDS else each.greedy
        shown.add_row(
            title if is_ours else "",
            each.side,
            f"{each.answers:,}",
            f"{each.p50_ms:.2f}",
            p99,
            f"{each.max_ms:,.1f}",
            f"{each.cpu_p99_ms:,.2f}",
            f"{each.cpu_max_ms:,.1f}",
            f"{each.broker_cores:.2f}",
            f"{each.p99_ms / kafka.p99_ms:.2f}" if is_ours and kafka is not None else "",
        )
    return shown


if __name__ == "__main__":
    main()
