"""Another number of partitions for a topic that is in use: a copy that follows it, and a switch without loss.

    from penstock.pipeline.repartition import Repartition, RepartitionOrder

    Repartition(spark, "localhost:9092", RepartitionOrder("orders", 24)).run()

Theory of operation
-------------------
Kafka can add partitions to a topic, but then new records of a key go to another partition than its old ones, and it
can never take partitions away. So the records move to a new topic, in phases:

    preparing → copying → fencing → draining → switched → done
        └─────────┴──────────┴─────────┴── abort: back to where it began

| phase | what happens |
|---|---|
| preparing | the new topic is created with the old one's replicas and settings |
| copying | Spark copies in chunks, one task per old partition, in order; it goes on following the old topic |
| fencing | the old topic is made read-only, and every leader is asked until it refuses |
| draining | what is left is copied; then nothing can come any more |
| switched | producers may write to the new topic; consumer groups get their positions there, one by one |

Order of a key: it lives in one old partition, whose task writes it in order to one new partition; chunks follow each
other; and the producers' records follow the last chunk, because they may write to the new topic only once it has all
of the old one. The copy places keys with the producers' partitioner (`plan.PARTITIONERS`).

Once and only once: each copied record has a header that says where it came from. After a crash the chunk's records that
did arrive are found by it (`copying`), and only the others are written. Tasks write on a lease, so that nobody writes a
chunk any more when it is looked at.

The state (`plan`) is a record of a compacted topic (`ledger`), so any machine can go on with it. The log of that topic
also decides who goes on (`claims`): each run claims the plan there, and one that finds a higher claim stops.

Groups (`translation`, `groups`): while it copies, the copier notes waypoints: "when the old topic had been copied up to
these offsets, the new one ended at those". From the waypoint before a group's position, the new topic is read once: the
group's new position in each partition is the first record that it has not read. Records behind it that the group has
read are counted: they will be read a second time.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.pipeline.repartition.driving import Repartition
    from penstock.pipeline.repartition.plan import Phase, RepartitionError, RepartitionOrder, RepartitionPlan

_HOMES = {
    "Phase": "plan",
    "Repartition": "driving",
    "RepartitionError": "plan",
    "RepartitionOrder": "plan",
    "RepartitionPlan": "plan",
}

__all__ = ["Phase", "Repartition", "RepartitionError", "RepartitionOrder", "RepartitionPlan"]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
