"""Coordinators: state machines that live in internal topics.

A *shard* is the state of one partition of an internal topic (`__consumer_offsets`, `__transaction_state`; share groups
are a further kind of shard on the same mechanism). It is pure: its inputs are requests, timers and metadata changes,
and its effects go into the `Turn` it is given: records to append, replies to this or earlier requests, requests to
other brokers, and timers. It never waits, and it accesses neither disk nor network nor clock.

A *host* (`penstock.coordinators.host`) runs one shard for as long as this broker leads the partition:

- **Load.** When the broker becomes leader the log is read from its start, in slices, and every record goes to
  `Shard.replay`; until then requests are answered COORDINATOR_LOAD_IN_PROGRESS.
- **Decide.** Each request is one call of the shard. The shard changes its state at once and puts the records that make
  the change durable into the turn. All records of one loop turn are appended as one batch, so the records of one
  request are written atomically.
- **Answer.** A reply, even to a read, is held until all records that the shard had written at the time of the decision
  are below the high watermark. So a client never sees state that a crash could undo.
- **Write for a producer.** A request that writes in a transaction, or ends one, names the producer or the marker. The
  host checks it against the log before it calls the shard: a fenced (zombie) producer is refused without side effects.
- **Ask.** A request to another broker is sent when the records of its decision are below the high watermark, and
  resent until it is answered. The answer is passed to the shard as a new decision. The next leader sends unanswered
  requests again (`Shard.on_loaded`).
- **Resign.** When the broker stops leading, or an append fails, pending requests are answered with NOT_COORDINATOR and
  the state is discarded. The next leader rebuilds it from the log, so no roll-back is needed.

    shard          the interface of a shard, and of the `Turn` that collects its effects
    host           runs one shard; with `turn`, `timers`, `clock` and `loading`
    partitioning   which partition a key belongs to
    groups         the shard of groups and their offsets (a package)
    transactions   the shard of transactional ids (a package)

`penstock.broker.coordination` declares the kinds of coordinators and keeps a host for every partition it leads.

A property test of every shard checks that replaying its records reproduces its state.
"""
