"""Faults on a cluster under load, and an account of every record: what `penstock chaos` does.

    load ──produce──▶ cluster ──fetch──▶ readers
      │                  ▲                  │
      └── sent, acked ─▶ ledger ◀── seen ───┘
                         ▲
          faults ────────┴── at the end: what is stored, read from the beginning

Idempotent producers with acks=all number what they send; every (producer, partition) is a *lane* in which numbers only
grow. A consumer group and a reader without a group follow all along. Everything that client libraries tell (sent,
acknowledged at which offset, assigned, read, committed) is written into the `ledger`, which is pure. At the end
the topic is read once more, from its first record to its last, and the ledger says what does not fit:

    lost         acknowledged, and not there
    moved        acknowledged at one offset, and there at another
    duplicated   there twice, and not because the client sent it again under a new epoch (`copies`)
    reordered    there, but in another order than it was sent in
    foreign      there, and nobody sent it
    skipped      there, and a reader went past it
    vanished     a reader saw it, and it is not there, or something else is
    went-back    a reader was given something again though nothing was reassigned
    commit-lost  a group went on before what it had committed

A record whose delivery failed may be there or not: the producer was told that nobody knows.

`pauses` has the times without acknowledgements, `reach` says how long the cluster could not have acknowledged at all,
and a `probe` beside the load shows when it did again, whatever the client did.

All of this speaks Kafka's protocol only, so it can be done to any cluster. What breaks a cluster is a *fault*
(`faults`): a command given by the user for a cluster of theirs, or a signal, a network cut or a full disk for one that
`nodes` starts here. `plan` decides from a seed which fault comes when. Faults run in the main thread, one after
another: each is applied, held, undone, and followed by a wait until all replicas are in sync again.
"""

from __future__ import annotations
