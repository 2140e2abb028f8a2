"""Coordinators: state machines that live in internal topics.

A *shard* is the state of one partition of an internal topic (`__consumer_offsets` today; transactions and share groups
are further kinds of shards on the same mechanism). It is pure: it gets requests, timers and metadata changes, and what
it wants done goes into the `Turn` it was handed: records to append, replies to send (to whoever asked, now or earlier),
requests to other brokers, and timers. It never waits, and reaches neither disk nor network nor clock.

A *host* (`penstock.coordinators.host`) runs one shard for as long as this broker leads the partition:

- **Load.** When the broker becomes leader the log is read from its start, in slices, and every record goes to
  `Shard.replay`; until then requests are answered COORDINATOR_LOAD_IN_PROGRESS.
- **Decide.** Each request is one call of the shard. The shard changes its state at once and puts the records that make
  the change durable into the turn. All records of one loop turn leave as one batch, so that what one request wrote is
  there wholly or not at all.
- **Answer.** A reply, that of a mere read too, is held until everything the shard had written when it was decided is
  below the high watermark: nobody ever sees state that a crash could take back.
- **Write for a producer.** A request that writes in a transaction, or ends one, names the producer or the marker. The
  log is asked before the shard is: a zombie is refused, and nothing else happens.
- **Ask.** A request to another broker leaves when the records of its decision are below the high watermark, is repeated
  until it is answered, and its answer is the next decision. Whoever leads next asks again (`Shard.on_loaded`).
- **Resign.** When the broker stops leading, or an append fails, whoever waits gets NOT_COORDINATOR and the state is
  thrown away. It is rebuilt from the log by whoever leads next. There is no roll-back to get wrong.

    shard          what a shard is, and what it may ask for (`Turn`)
    host           runs one shard; with `turn`, `timers`, `clock` and `loading`
    partitioning   which partition a key belongs to
    groups         the shard of groups and their offsets (a package)

`penstock.broker.coordination` declares the kinds of coordinators and keeps a host for every partition that it leads.

Loading a shard from the records it wrote gives the state it had: that is a property test of every shard.
"""
