"""`penstock chaos`: injects faults into a cluster under load and checks what became of every record.

    load ──produce──▶ cluster ──fetch──▶ readers
      │                  ▲                  │
      └── sent, acked ─▶ ledger ◀── seen ───┘
                         ▲
          faults ────────┴── at the end: the stored records, read from the beginning

Idempotent producers with acks=all number their records. Every (producer, partition) is a *lane* with ascending numbers.
A consumer group and a reader without a group read throughout the run. Everything that the client libraries report
(sent, acknowledged at which offset, assigned, read, committed) goes into the `ledger`, which is pure. At the end the
whole topic is read once more, and the ledger reports every violation:

    lost         acknowledged but not stored
    moved        acknowledged at one offset but stored at another
    duplicated   stored twice, and not because the client resent it under a new epoch (`copies`)
    reordered    stored in another order than it was sent
    foreign      stored but never sent
    skipped      stored, but a reader went past it
    vanished     read, but no longer stored, or replaced by another record
    went-back    read again although nothing was reassigned
    commit-lost  a group resumed before its committed offset

A record whose delivery failed may be stored or not: its producer was told that the outcome is unknown.

`pauses` measures the times without acknowledgements. `reach` computes how long the cluster could not have acknowledged
at all. A `probe` next to the load shows when the cluster acknowledged again, independently of the client under load.

All of this uses only Kafka's protocol, so it works with any cluster. A *fault* (`faults`) breaks the cluster: a
command given by the user for an existing cluster, or a signal, a network cut or a full disk for one that `nodes` starts
here. `plan` derives the order of faults from a seed. Faults run in the main thread: each is applied, held, undone, and
followed by a wait until all replicas are in sync again.
"""

from __future__ import annotations
