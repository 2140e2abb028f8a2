"""What to do now: reads the state of a cluster and answers by urgency. Pure, but for `gathering`.

Each item of advice has evidence, the expected effect, the risk, and the command to run. A healthy cluster gets none,
and neither does an idle one: small numbers are no fault.

- `situation`: everything the advice is based on: the figures of `penstock monitor`, and a few more.
- `health`: what is broken: offline partitions, brokers that are down.
- `bottleneck`: what limits the cluster: CPU, disk, network, replication, producers, consumers, skew (L7).
- `consumers`: how many consumers a group should have (S6); `autoscaling` exports it for KEDA and HPA.
- `hot`: hot partitions and hot keys, with a simulation of the cure on sampled keys (S7).
- `brokers`: a larger machine or one more, by 002's matrices and thresholds.
- `topics`: retention, codec and partition count, and what a change saves a month.
- `gathering`: asks a cluster for what these need, through Kafka's protocol.
"""

from penstock.advise.advice import advise
from penstock.advise.items import Item, Urgency
from penstock.advise.situation import Situation

__all__ = ["Item", "Situation", "Urgency", "advise"]
