"""`python -m bench.cluster`: three nodes, killed and under load, Penstock beside Apache Kafka.

Both sides run three nodes that are broker and controller at once, replication factor 3, `min.insync.replicas` 2 and
acks=all; otherwise the defaults, but for the cases called `-equal`, where both have the same short timeouts.
"""

from __future__ import annotations

import sys
from fnmatch import fnmatchcase

from bench import command_line
from bench.cluster_faults import CatchUp, ControllerFailover, FailedRequests, Failover, FollowerKill
from bench.cluster_load import AtRest, LatencyReplicated, ProduceReplicated
from bench.model import Case


def all_cases(minutes: float) -> list[Case]:
    return [
        *(Failover(controller=who, equal=equal) for equal in (False, True) for who in (False, True)),
        ControllerFailover(),
        FollowerKill(),
        FailedRequests(minutes),
        CatchUp(),
        ProduceReplicated(),
        LatencyReplicated(),
        AtRest(),
    ]


def main() -> None:
    parser = command_line.parser("Three nodes, Penstock beside Apache Kafka.", pairs=3)
    parser.add_argument(
        "--cases",
        default="*",
        metavar="NAMES",
        help="names or patterns, with commas between: 'failover-*,rest' (default: all)",
    )
    parser.add_argument("--minutes", type=float, default=2, metavar="N", help="of failed-requests (default 2)")
    parser.add_argument("--list", action="store_true", help="name the cases and end")
    given = parser.parse_args()
    cases = all_cases(given.minutes)
    if given.list:
        for case in cases:
            print(f"{case.name:24} {case.title}")
        return
    patterns = [pattern.strip() for pattern in given.cases.split(",")]
    for pattern in patterns:
        if not any(fnmatchcase(case.name, pattern) for case in cases):
            parser.error(f"no case matches {pattern!r}; there are: {', '.join(case.name for case in cases)}")
    try:
        command_line.run([one for one in cases if any(fnmatchcase(one.name, two) for two in patterns)], given)
    except KeyboardInterrupt:
        sys.exit("interrupted; everything that was started is stopped")


if __name__ == "__main__":
    main()
