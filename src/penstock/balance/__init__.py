"""Plans which broker holds which replicas as a cluster grows, shrinks or is rebalanced, and executes such plans. Pure.

    model = ClusterModel(cluster_id, brokers, partitions)     # a snapshot of the cluster
    plan = add_brokers(model, [4])                            # or drain_brokers, balance, place
    file = PlanFile(plan.moves, cluster=model.cluster_id, throttle=50_000_000)
    Executor(port, file, save=…).run()                        # assessment, steps, throttles, validation

Theory of operation
-------------------
A **plan** is a list of moves, each with the replicas before and after. It is computed from a model of the cluster and
nothing else, so the same cluster always gives the same plan.

- `grow`: a broker with less than its share takes replicas from those with the most (`spread`): the fewest moves that
  give it its share, spread evenly over topics, leaders in proportion, and no partition in fewer racks than before.
- `shrink`: all replicas of a broker move elsewhere: to an unused rack if possible, then to the least loaded broker.
- `optimise`: ordered goals (`goals`): hard ones first, then soft ones that must not worsen earlier goals.
- `place`: chosen topics on chosen brokers, with a chosen number of replicas.

`execution` carries a plan out through a `ClusterPort`, which works with any Kafka cluster. It moves a tenth of the plan
at a time by default, throttled (`throttles`), and waits between steps until the cluster is stable. `assessment` checks
first, and refuses with a reason, before anything is changed: an unhealthy cluster, a plan for another cluster or an
outdated state of it, disks that would be too full. `planfile` is Kafka's reassignment JSON with additional fields. The
file and the cluster are the whole state, so an interrupted plan can be executed again at any time and resumes.
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
