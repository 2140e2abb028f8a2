"""The assignors that run in the coordinator: they compute which member consumes which partitions.

An assignor is a pure function from a `GroupSpec` to an assignment for every member. It sees partition counts and, per
member, the subscription and the previous target. A member whose assignment stays the same gets the same object back, so
the caller knows without comparing which targets to write.

- `uniform` (the default) gives each member the same number of partitions, give or take one, and moves few partitions.
- `range` gives consecutive partitions, the same numbers of every topic to the same member where subscriptions and
  partition counts allow it: for joins of topics that were partitioned alike.

Racks are ignored, as in Kafka 4.
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
