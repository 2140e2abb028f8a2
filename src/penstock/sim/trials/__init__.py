"""Trials: a whole cluster, clients that record what was acknowledged, a list of faults, and a verdict.

- `schedule`: a trial as data: the cluster, the load, and *timed faults*. It is stored as JSON, so a schedule that found
  a bug can be replayed forever (a seed alone becomes useless as soon as the code draws one more random number).
  `generators`: the schedule of each seed.
- `injector`: applies the faults to a `SimCluster`, and undoes each after its time. It skips a fault that exceeds what
  the product promises to survive, for example a second power failure before the first replica is back.
- `clients`, `load`, `groups`, `topics`: the load, at a low rate: idempotent producers with acks=all and five requests
  in flight, readers, group members of both protocols, topics that are created and deleted. Each has a ledger.
- `watch`: the invariants at every moment (one leader per epoch, nothing goes back), checked a few times a second.
- `verdict`: the conditions that must hold after the faults are over: the ledgers agree with the logs, and the logs and
  the metadata of all nodes agree.
- `coverage`: what actually happened. Seeds in which no leader changed prove nothing about leader changes.
- `trial`: one trial of a cluster from start to verdict. `alone`: one of a single node with damaged files (`damage`),
  with its own verdict. `running`: runs a schedule of either kind.
- `shrink`: minimises a failing schedule.
- `campaign`: many trials on all cores, with a progress bar. `python -m penstock.sim.trials --help`.

A fault is data with a start and a duration, never a pair of "cut" and "heal". So each can be left out by itself, and
shrinking is a search over subsets.
"""
