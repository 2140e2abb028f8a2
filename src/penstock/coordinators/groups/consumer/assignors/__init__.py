"""Who shall consume what: the assignors that run in the coordinator.

An assignor is a pure function from a `GroupSpec` to an assignment for every member. It sees partition counts and, per
member, the subscription and what the member was to own so far. A member whose assignment stays the same gets the very
object back that it came with, so the caller knows without comparing what has to be written down.

- `uniform` (the default) gives everyone the same number of partitions, to within one, and moves as few as it can.
- `range` gives consecutive partitions, the same numbers of every topic to the same member where subscriptions and
  partition counts allow it: for joins of topics that were partitioned alike.

Racks are not looked at, as in Kafka 4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from penstock.coordinators.groups.consumer.assignors.ranges import assign_range
from penstock.coordinators.groups.consumer.assignors.spec import NO_PARTITIONS, Assignment, GroupSpec, MemberSpec
from penstock.coordinators.groups.consumer.assignors.uniform import assign_uniform

__all__ = ["ASSIGNORS", "NO_PARTITIONS", "Assignment", "Assignor", "GroupSpec", "MemberSpec"]

Assignor = Callable[[GroupSpec], dict[str, Assignment]]

ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
