"""`python -m bench.groups`: consumer groups and their offsets, Penstock beside Apache Kafka.

The load is not a client library's but that of `groups_client`, one process that plays all members, because hundreds of
full clients would leave nothing of the machine to the brokers. Both sides get the same delay for the first rebalance
of a group, the same heartbeat intervals and the same session timeouts (`groups_settings`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from bench import command_line
from bench.groups_client import run, within
from bench.groups_footprint import IdleGroups
from bench.groups_members import GroupShape
from bench.groups_offsets import Commits, OffsetsLoad, commit
from bench.groups_rebalances import Killed, Stable, form_once
from bench.groups_settings import timing
from bench.model import Case, Side
from bench.runner import Bench
from bench.topics import create_topics, delete_topic
from support.server_process import ServerProcess

_WARMUP_TOPIC = "bench-groups-warmup"
_WARMUP_S = {Side.PENSTOCK: 5, Side.KAFKA: 40}
_WARMUP_MEMBERS = 50
_WARMUP_PARTITIONS = 100
_WARMUP_REQUESTS = 200
_WARMUP_TIMEOUT_S = 300


class GroupBench(Bench):
    """Brokers with the settings of these benchmarks, warmed up with groups and commits."""

    @property
    def client_kind(self) -> str:
        return "groups_client.py, raw protocol"

    def _new(self, side: Side, properties: Mapping[str, str], command: Sequence[str] | None = None) -> ServerProcess:
        return super()._new(side, {**timing(self.options.quick).properties, **properties}, command)

    def _warm_up(self, side: Side, broker: ServerProcess) -> None:
        times, members = timing(self.options.quick), self.scaled(_WARMUP_MEMBERS)
        create_topics(broker.bootstrap, {_WARMUP_TOPIC: _WARMUP_PARTITIONS})
        end_s = time.monotonic() + (0 if self.options.quick else _WARMUP_S[side])
        while True:
            for protocol in ("classic", "consumer"):
                shape = GroupShape(
                    protocol,
                    members,
                    _WARMUP_TOPIC,
                    _WARMUP_PARTITIONS,
                    times.heartbeat_interval_ms,
                    times.session_timeout_ms,
                )
                run(within(form_once(broker.bootstrap, shape), _WARMUP_TIMEOUT_S))
            for partitions in (1, _WARMUP_PARTITIONS):
                load = commit(broker, _WARMUP_TOPIC, partitions, members, self.scaled(_WARMUP_REQUESTS), 1)
                run(within(load, _WARMUP_TIMEOUT_S))
            if time.monotonic() > end_s:
                break
        delete_topic(broker, _WARMUP_TOPIC)


def all_cases() -> list[Case]:
    return [
        *(Stable(protocol, members) for protocol in ("classic", "consumer") for members in (20, 200, 1000)),
        Killed("classic"),
        Killed("consumer"),
        Commits(1, requests=200_000),
        Commits(100, requests=20_000),
        IdleGroups(10_000, empty=True),
        IdleGroups(10_000, empty=False),
        OffsetsLoad(),
    ]


def main() -> None:
    parser = command_line.parser("Groups and offsets, Penstock beside Apache Kafka.", pairs=3)
    parser.add_argument(
        "--cases",
        default="*",
        metavar="NAMES",
        help="names or patterns, with commas between: 'stable-*,commits-1' (default: all)",
    )
    parser.add_argument("--list", action="store_true", help="name the cases and end")
    given = parser.parse_args()
    cases = all_cases()
    if given.list:
        for case in cases:
            print(f"{case.name:24} {case.title}")
        return
    patterns = [pattern.strip() for pattern in given.cases.split(",")]
    for pattern in patterns:
        if not any(fnmatchcase(case.name, pattern) for case in cases):
            parser.error(f"no case matches {pattern!r}; there are: {', '.join(case.name for case in cases)}")
    chosen = [case for case in cases if any(fnmatchcase(case.name, pattern) for pattern in patterns)]
    try:
        command_line.run(chosen, given, GroupBench)
    except KeyboardInterrupt:
        sys.exit("interrupted; everything that was started is stopped")


if __name__ == "__main__":
    main()
