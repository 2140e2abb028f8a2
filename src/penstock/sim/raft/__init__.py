"""The pure Raft core in bulk: many quorums, no sockets, no files, nothing but cores in one loop.

- `cluster`: nodes with a small shell around each core, a network that delays, loses, reorders and cuts, disks that
  forget what was not synced; after every step a checker compares what happened with Raft's promises.
- `chaos`: random faults and operations from one seed. `run_chaos(seed)`, `run_storm(seed)`.
- `kafka`: the seven scenarios of Apache Kafka's own simulation of its quorum. `run_kafka(seed)`.

A seed takes some 30 ms, so these run by the thousand where whole clusters (`penstock.sim.trials`) run by the dozen.
"""
