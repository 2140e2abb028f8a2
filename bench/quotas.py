"""`python -m bench.quotas`: what ten polite clients notice of a greedy one that has a quota.

The polite clients each produce a small record, one after the other, with a short pause between. Beside them one client
sends as fast as it can: it produces, fetches, or pipelines requests. Its client id has a quota. A sample is the p99 of
the polite clients' waits, first without the greedy client and then beside it. Prints the median of five such pairs. The
target: at most 1.2 times the wait without it, or 1 ms more.

The greedy client runs at low priority, so that on a small machine it does not keep the polite ones from their
processor. "CPU" is the broker's own processor time during a wait: on a busy machine, the part of the wait that is
the broker's. `--without` repeats it without the quota. `--kafka` measures Apache Kafka as well.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from bench import processes, wire
from bench.fairness import POLITE_TOPIC, REPORT_WIDTH, SETTLE_S, at_it, await_quiet, quantile
from bench.greed import LIMITED, LIMITED_CLIENT, frame
from bench.model import Side
from bench.topics import create_topics
from penstock.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from support import apache_kafka
from support.penstock import PenstockServer
from support.server_process import ServerProcess

POLITE_CLIENTS = 10
PAUSE_S = 0.001
PAIRS = 5
RATIO_MAX = 1.2
MORE_MS_MAX = 1.0
QUOTAS = {
    "limited-produce": ("producer_byte_rate", 5_000_000.0),
    "limited-fetch": ("consumer_byte_rate", 5_000_000.0),
    "limited-metadata": ("request_percentage", 5.0),
}


@dataclass(frozen=True, slots=True)
class Waits:
    p99_ms: float
    cpu_p99_ms: float


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.quotas", description=__doc__)
    parser.add_argument("--kafka", action="store_true", help="Apache Kafka as well")
    parser.add_argument("--seconds", type=float, default=4.0, help="for each half of a pair")
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--kinds", default=",".join(LIMITED))
    parser.add_argument("--without", action="store_true", help="also without the quota")
    given = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else REPORT_WIDTH)
    target = f"{RATIO_MAX} x or {MORE_MS_MAX:g} ms more"
    shown = Table(title=f"ten polite clients beside one under a quota (target: {target})")
    for title in ("beside", "side", "quota"):
        shown.add_column(title)
    for title in ("p99 alone ms", "p99 beside ms", "ratio", "more ms", "CPU alone ms", "CPU beside ms"):
        shown.add_column(title, justify="right")
    with ExitStack() as running:
        brokers: dict[Side, ServerProcess] = {Side.PENSTOCK: running.enter_context(PenstockServer())}
        if given.kafka and not apache_kafka.available():
            brokers[Side.KAFKA] = running.enter_context(apache_kafka.ApacheKafka())
        for broker in brokers.values():
            prepare(broker.bootstrap)
        for kind in given.kinds.split(","):
            for side, broker in brokers.items():
                for has_quota in (True, False) if given.without else (True,):
                    shown.add_row(*measured(kind, side, broker, given.seconds, given.pairs, has_quota=has_quota))
    console.print(shown)


def prepare(bootstrap: str) -> None:
    create_topics(bootstrap, {POLITE_TOPIC: 1, "bench-filled": 1, "bench-greedy": 1})
    fill = wire.produce_frame("bench-filled", 0, bytes(900_000)).request
    with wire.connect(bootstrap) as connection:
        for _ in range(20):
            wire.ask(connection, fill)


def measured(
    kind: str, side: Side, broker: ServerProcess, seconds: float, pairs: int, *, has_quota: bool
) -> tuple[str, ...]:
    key, limit = QUOTAS[kind]
    set_quota(broker.bootstrap, key, limit if has_quota else None)
    alone, beside = [], []
    for _ in range(pairs):
        await_quiet(broker)
        alone.append(polite(broker, seconds))
        with at_it(broker.bootstrap, [kind], nice=10):
            time.sleep(SETTLE_S)
            beside.append(polite(broker, seconds))
    before_ms = statistics.median(waits.p99_ms for waits in alone)
    after_ms = statistics.median(waits.p99_ms for waits in beside)
    more_ms = statistics.median(after.p99_ms - before.p99_ms for before, after in zip(alone, beside, strict=True))
    ratio = statistics.median(after.p99_ms / before.p99_ms for before, after in zip(alone, beside, strict=True))
    set_quota(broker.bootstrap, key, None)
    good = not has_quota or ratio <= RATIO_MAX or more_ms <= MORE_MS_MAX
    return (
        LIMITED[kind].title,
        side.value,
        f"{key}={limit:g}" if has_quota else "none",
        f"{before_ms:.2f}",
        f"{after_ms:.2f}",
        f"{ratio:.2f}" if good else f"[bold red]{ratio:.2f}[/]",
        f"{more_ms:+.2f}",
        f"{statistics.median(waits.cpu_p99_ms for waits in alone):.2f}",
        f"{statistics.median(waits.cpu_p99_ms for waits in beside):.2f}",
    )


def set_quota(bootstrap: str, key: str, limit: float | None) -> None:
    entry = AlterClientQuotasRequestEntryData(
        entity=[AlterClientQuotasRequestEntityData(entity_type="client-id", entity_name=LIMITED_CLIENT)],
        ops=[OpData(key=key, value=limit or 0.0, remove=limit is None)],
    )
    with wire.connect(bootstrap) as connection:
        wire.ask(connection, frame(AlterClientQuotasRequest(entries=[entry])))


def polite(broker: ServerProcess, seconds: float) -> Waits:
    request = wire.produce_frame(POLITE_TOPIC, 0, bytes(100)).request
    waits: list[tuple[float, float]] = []
    with ExitStack() as open_:
        clients = [open_.enter_context(wire.connect(broker.bootstrap)) for _ in range(POLITE_CLIENTS)]
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            for client in clients:
                asked_s, cpu_s = time.monotonic(), processes.fine_cpu_s(broker.pid)
                wire.ask(client, request)
                waits.append(((time.monotonic() - asked_s) * 1000, (processes.fine_cpu_s(broker.pid) - cpu_s) * 1000))
                time.sleep(PAUSE_S)
    wall_ms, cpu_ms = (sorted(column) for column in zip(*waits, strict=True))
    return Waits(quantile(wall_ms, 0.99), quantile(cpu_ms, 0.99))


if __name__ == "__main__":
    main()
