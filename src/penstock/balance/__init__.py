"""Growing, shrinking and balancing a cluster: what should be where, and getting it there. Pure.

    model = ClusterModel(cluster_id, brokers, partitions)     # as the cluster tells it
    plan = add_brokers(model, [4])                            # or drain_brokers, balance, place
    file = PlanFile(plan.moves, cluster=model.cluster_id, throttle=50_000_000)
    Executor(port, file, save=…).run()                        # assessment, steps, throttles, validation

Theory of operation
-------------------
A **plan** is a list of moves, each with the replicas before and after; it is made from a model of the cluster and
nothing else, so the same cluster always gives the same plan.

- `grow`      a broker that holds less than its share takes from those that hold most (`spread`): the fewest moves that
  give it as much, even over topics, leaders in proportion, never into fewer racks.
- `shrink`    all replicas of a broker go elsewhere: where they use another rack, then where there is least.
- `optimise`  ordered goals (`goals`): hard ones first, then soft ones that may not harm those before them.
- `place`     chosen topics on chosen brokers, with a chosen number of replicas.

A plan is carried out by `execution` through a `ClusterPort`, behind which there is any Kafka cluster: in steps (a tenth
at a time by default), throttled (`throttles`), steady between steps. `assessment` looks first: a cluster that is not
well, a plan that was made for another cluster or another state of it, disks that would be too full are refused with
the reason, and nothing is changed. `planfile` is Kafka's own reassignment JSON with more in it. Together with the
cluster it is the whole state: an interrupted plan is carried out again and goes on, at any moment.
"""

from penstock.balance.assessment import Finding, State, assess, check_moves, state_of
from penstock.balance.execution import (
    ClusterPort,
    Counts,
    ExecutionFailed,
    Executor,
    Progress,
    Report,
    refuse_misfits,
)
from penstock.balance.goals import SOFT_GOALS, BrokerGroup, Goal, Rules
from penstock.balance.grow import add_brokers
from penstock.balance.model import Broker, ClusterModel, Key, Load, Partition
from penstock.balance.optimise import Shortfall, balance, shortfalls
from penstock.balance.place import place
from penstock.balance.plan import STEP_SHARE, Flow, Move, Plan, PlanRefused, apply, flows, least_seconds, steps
from penstock.balance.planfile import PlanFile, Rates
from penstock.balance.shrink import drain_brokers
from penstock.balance.throttles import Throttled

__all__ = [
    "SOFT_GOALS",
    "STEP_SHARE",
    "Broker",
    "BrokerGroup",
    "ClusterModel",
    "ClusterPort",
    "Counts",
    "ExecutionFailed",
    "Executor",
    "Finding",
    "Flow",
    "Goal",
    "Key",
    "Load",
    "Move",
    "Partition",
    "Plan",
    "PlanFile",
    "PlanRefused",
    "Progress",
    "Rates",
    "Report",
    "Rules",
    "Shortfall",
    "State",
    "Throttled",
    "add_brokers",
    "apply",
    "assess",
    "balance",
    "check_moves",
    "drain_brokers",
    "flows",
    "least_seconds",
    "place",
    "refuse_misfits",
    "shortfalls",
    "state_of",
    "steps",
]
