"""Consumer groups as applications see them: real clients in processes of their own, under a running load.

A *member* is a process that runs one of the programs in `workers/`, one per client library. Each reads records, writes
down that it processed them, and commits after that. All members of a test write into one file, the `Ledger`, with
appends that the kernel puts in one order; a member that is killed loses nothing that it had written. What the group
promised is then checked from that one sequence: every acknowledged record was processed, none was skipped by a commit,
none came again after its commit, and no partition had two owners at a time.

The tests run against Penstock. With `PENSTOCK_TESTED_BROKER=apache-kafka` they run against Apache Kafka instead, which
is how one tells a wrong test from a wrong broker (`make compat`).
"""
