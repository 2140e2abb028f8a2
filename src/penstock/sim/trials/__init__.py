"""Trials: a whole cluster, clients that remember what they were told, a list of faults, and a verdict.

- `schedule`: what a trial is, as data: the cluster, the load, and *timed faults*. It is JSON on disk, so a schedule
  that found a bug is kept and replayed for ever (a seed alone goes stale as soon as the code asks for one random
  number more). `generators`: which schedule belongs to a seed.
- `injector`: does the faults to a `SimCluster`, and undoes each after its time. It leaves out a fault that would take
  more than the product promises to survive: the second of two power failures, say, before the first replica is back.
- `clients`, `load`, `groups`, `topics`: what goes on meanwhile, at a low rate: idempotent producers with acks=all and
  five requests in flight, readers, members of groups of both protocols, topics that come and go. Each has a ledger.
- `watch`: what must hold at every moment (one leader per epoch, nothing goes back), looked at a few times a second.
- `verdict`: what must hold in the end, when the faults are over: the ledgers agree with the logs, the logs and the
  metadata with each other.
- `coverage`: what really happened. Seeds in which no leader changed prove nothing about leaders that change.
- `trial`: one trial of a cluster from start to verdict. `alone`: one of a single node whose files are damaged
  (`damage`), with a verdict of its own. `running`: runs a schedule of either kind.
- `shrink`: a failing schedule, made as small as it gets.
- `campaign`: many trials, on all cores, with a progress bar. `python -m penstock.sim.trials --help`.

A fault is data with a beginning and a length, never a pair of "cut" and "heal": so each can be left out by itself,
and shrinking is a search over subsets.
"""
