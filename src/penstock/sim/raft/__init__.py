"""Simulates the pure Raft core in bulk: many quorums of cores in one loop, without sockets or files.

- `cluster`: nodes with a small shell around each core, a network that delays, loses, reorders and cuts, and disks that
  lose unsynced data; after every step a checker verifies Raft's guarantees.
- `chaos`: random faults and operations from one seed. `run_chaos(seed)`, `run_storm(seed)`.
- `kafka`: the seven scenarios of Apache Kafka's own simulation of its quorum. `run_kafka(seed)`.

A seed takes some 30 ms, so these run by the thousand where whole clusters (`penstock.sim.trials`) run by the dozen.
"""
