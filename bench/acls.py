"""What a decision costs with 10,000 ACLs, and with 10: the first time, from memory, and after a change.

    python -m bench.acls

`python -m bench.gate` shows the same for a whole produce request.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from penstock.acls import Acl, Decisions, PatternType, Permission, acl_id
from penstock.wire.acls import Operation, ResourceKind

ACLS = 10_000
ROUNDS = 15
QUESTIONS = 2_000


def ten_thousand_acls(topic: str, count: int = ACLS, user: str = "ANONYMOUS") -> list[Acl]:
    """ACLs of 100 teams: a third prefixed, some on the same topic, a few denials. One allows `user` the topic."""
    acls = [Acl(ResourceKind.TOPIC, topic, PatternType.LITERAL, f"User:{user}", "*", Operation.WRITE, Permission.ALLOW)]
    number = 0
    while len(acls) < count:
        number += 1
        name = topic if number % 10 == 0 else f"team-{number % 100}.{'orders' if number % 2 else 'clicks'}-{number}"
        pattern = PatternType.PREFIXED if number % 3 == 0 and name != topic else PatternType.LITERAL
        permission = Permission.DENY if number % 50 == 0 else Permission.ALLOW
        host = f"10.{number % 200}.0.0/16" if number % 4 == 0 else "*"
        acls.append(Acl(ResourceKind.TOPIC, name, pattern, f"User:u{number}", host, Operation.READ, permission))
    return acls


def best_us(action: Callable[[], object], repeat: int) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter()
        action()
        best = min(best, time.perf_counter() - began)
    return best / repeat * 1e6


def figures(count: int) -> dict[str, float]:
    acls = ten_thousand_acls("bench", count)
    decisions = Decisions()
    entries = [(acl_id(acl), acl) for acl in acls]
    load_us = best_us(lambda: decisions.load(entries), 1)
    extra = Acl(ResourceKind.GROUP, "g", PatternType.LITERAL, "User:x", "*", Operation.READ, Permission.ALLOW)

    def ask(name: str) -> bool:
        return decisions.decide("User", "ANONYMOUS", "10.1.2.3", Operation.WRITE, ResourceKind.TOPIC, name).allowed

    def anew() -> None:
        decisions.change([], [])
        for number in range(QUESTIONS):
            ask(f"team-{number % 100}.orders-{number}")

    def again() -> None:
        for _ in range(QUESTIONS):
            ask("bench")

    def change() -> None:
        decisions.change([], [(acl_id(extra), extra)])
        decisions.change([acl_id(extra)], [])

    return {
        "a decision from memory": best_us(again, QUESTIONS),
        "a decision the first time": best_us(anew, QUESTIONS),
        "adding and removing one ACL": best_us(change, 1),
        "loading all": load_us,
    }


def main() -> int:
    few, many = figures(10), figures(ACLS)
    print(f"{'':30}{'10 ACLs':>12}{f'{ACLS:,} ACLs':>14}{'ratio':>8}")
    for what, cost in many.items():
        print(f"{what:30}{few[what]:9.2f} µs{cost:11.2f} µs{cost / few[what]:8.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
