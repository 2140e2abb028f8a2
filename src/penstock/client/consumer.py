"""A consumer for threads.

    with Consumer("localhost:9092", "orders", group="shipping") as consumer:
        for message in consumer:
            ship(message.value())

Records that the loop has finished are committed every `auto.commit.interval.ms`, when partitions are revoked, and on
close; the record still being processed never is. After a crash, records may be repeated but none is skipped.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Protocol, Self

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, Message
from confluent_kafka import Consumer as NativeConsumer
from confluent_kafka import TopicPartition as NativePartition

from penstock.client.closing import close_member
from penstock.client.cluster import TopicPartition
from penstock.client.errors import CommitFailed, ConsumeFailed, SettingsError, TransactionAborted, TransactionFatal
from penstock.client.handed_out import HandedOut
from penstock.client.metrics import ConsumerMetrics
from penstock.client.options import consumer_options, refused
from penstock.client.since_commit import SinceCommit

log = logging.getLogger("penstock.client")

POLL_STEP_S: Final = 0.25
"""The longest single wait for records, which bounds the reaction time to `stop` and Ctrl-C."""
RETRY_STEP_S: Final = 0.1
SEEK_WAIT_S: Final = 10.0
SLOW_BATCH_S: Final = 1.0
NO_GROUP: Final = "penstock-no-group"

Offsets = Mapping[TopicPartition, int] | Mapping[tuple[str, int], int]
"""Keyed by (topic, partition)."""
Rebalanced = Callable[[list[TopicPartition]], object]

_PASSES = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR,
        KafkaError.REQUEST_TIMED_OUT, KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._WAIT_COORD,
        KafkaError._ALL_BROKERS_DOWN,
    }
)  # fmt: skip
"""Commit errors that are retried."""

_STOPS = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError._AUTO_OFFSET_RESET,
        KafkaError.TOPIC_EXCEPTION, KafkaError._BAD_COMPRESSION, KafkaError.INCONSISTENT_GROUP_PROTOCOL,
        KafkaError.FENCED_INSTANCE_ID, KafkaError._FATAL, KafkaError._LOG_TRUNCATION,
    }
)  # fmt: skip
"""Read errors that are not retriable."""


class OffsetSource(Protocol):
    """A source of start offsets other than the group's commits: see `penstock.client.stores`."""

    def load(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The next offset of each partition that has a saved one."""
        ...


class Consumer:
    """Reads topics as a member of a group, or chosen partitions (`assign`). Use it from one thread.

    `topics` may be a pattern that begins with `^`. `properties` and keywords are settings, under Java's or librdkafka's
    names (`max_poll_records=100`); for the defaults see `penstock.client.defaults`.

    - `offset_store`: supplies the start offsets; nothing is committed to the group unless you call `commit`.
    - `on_assign`, `on_revoke`, `on_lost`: rebalance listeners. `on_revoke` may still commit; in `on_lost` the
      partitions already belong to another member.
    """

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        topics: str | Sequence[str] | None = None,
        group: str | None = None,
        properties: Mapping[str, object] | None = None,
        *,
        offset_store: OffsetSource | None = None,
        on_assign: Rebalanced | None = None,
        on_revoke: Rebalanced | None = None,
        on_lost: Rebalanced | None = None,
        **settings: Any,
    ) -> None:
        if group is not None:
            settings["group.id"] = group
        self.options = consumer_options(bootstrap_servers, properties, settings)
        self.group = self.options.properties.get("group.id")
        self.max_poll_records = self.options.number("max.poll.records", smallest=1)
        self.auto_commit = self.options.flag("enable.auto.commit") and offset_store is None and self.group is not None
        self.metrics = ConsumerMetrics(self.options.client_id)
        self._interval_s = self.options.number("auto.commit.interval.ms", smallest=1) / 1000
        self._api_timeout_s = self.options.number("default.api.timeout.ms") / 1000
        self._store = offset_store
        self._listeners: list[tuple[Rebalanced | None, Rebalanced | None, Rebalanced | None]] = []
        self.listen(on_assign, on_revoke, on_lost)
        self._handed: HandedOut[Message] = HandedOut()
        self._committed: dict[TopicPartition, int] = {}
        self._asked_s: deque[float] = deque()
        self._commit_due_s = time.monotonic() + self._interval_s
        self._since_commit: SinceCommit | None = None
        self._unsettled: TransactionFatal | None = None
        self._slow = True
        self._stopped = False
        self._closed = False
        self._subscribed = False
        self._given_back = False
        protocol = self.options.properties.get("group.protocol", "classic").lower()
        strategy = self.options.properties.get("partition.assignment.strategy", "")
        self._incremental = protocol == "consumer" or strategy.startswith("cooperative")
        try:
            self.native: NativeConsumer = confluent_kafka.Consumer(self._native_settings())
        except KafkaException as problem:
            raise refused(problem) from problem
        if topics is not None:
            self.subscribe([topics] if isinstance(topics, str) else list(topics))

    # Reading

    def __iter__(self) -> Iterator[Message]:
        """Yields records until `stop`. Requesting the next record marks the previous one as done.

        If the loop breaks or raises, the current record is not done and is delivered again.
        """
        handed, clock = self._handed, time.monotonic
        while not self._stopped:
            batch = self._next_batch(POLL_STEP_S, self.max_poll_records, whole=False)
            started_s = clock()
            if self._slow:
                # Commits between the records of a slow batch too, not only at its end.
                for handed.current, message in enumerate(batch):
                    yield message
                    if clock() >= self._commit_due_s:
                        self._commit_if_due()
                    if self._stopped:
                        break
            else:
                for handed.current, message in enumerate(batch):
                    yield message
                    if self._stopped:
                        break
            # The records yielded are done. The rest, if the loop was stopped, is kept for the next iteration.
            handed.keep(handed.take_rest())
            self._slow = clock() - started_s > SLOW_BATCH_S

    def poll(self, timeout_s: float = 1.0, *, max_records: int | None = None) -> list[Message]:
        """Returns up to `max.poll.records` records, or none on timeout. Marks the previous poll's records as done."""
        limit = self.max_poll_records if max_records is None else min(max_records, self.max_poll_records)
        return self._next_batch(timeout_s, limit, whole=True)

    def stop(self) -> None:
        """Ends the iteration soon. The only method that other threads and signal handlers may call."""
        self._stopped = True

    def subscribe(self, topics: Sequence[str]) -> None:
        """Joins the group for these topics; a name that begins with `^` is a pattern."""
        if self.group is None:
            raise SettingsError("group.id", "a subscription needs a group: give group=…, or use assign")
        self._subscribed = True
        on_assign, on_revoke, on_lost = self._assigned, self._revoked, self._lost
        self.native.subscribe(list(topics), on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost)

    def listen(
        self,
        on_assign: Rebalanced | None = None,
        on_revoke: Rebalanced | None = None,
        on_lost: Rebalanced | None = None,
    ) -> None:
        """Adds a rebalance listener; listeners are called in the order they were added."""
        self._listeners.append((on_assign, on_revoke, on_lost))

    def assign(self, partitions: Iterable[tuple[str, int]] | Offsets) -> None:
        """Reads these partitions outside a group, from the offsets given, else saved ones, else `auto.offset.reset`."""
        offsets: dict[TopicPartition, int] = {}
        names = [TopicPartition(*one) for one in partitions]
        if self._store is not None:
            offsets |= self._store.load(names)
        if isinstance(partitions, Mapping):
            offsets |= {TopicPartition(*one): offset for one, offset in partitions.items()}
        self._handed.drop(self.assignment())
        self._committed.clear()
        self.native.assign([_native(one, offsets.get(one)) for one in names])

    def assignment(self) -> list[TopicPartition]:
        return sorted(_named(self.native.assignment()))

    # Positions

    def pause(self, partitions: Iterable[tuple[str, int]] | None = None) -> None:
        """Stops delivering records of these partitions (default: all) until `resume`; the member stays in its group."""
        chosen = self._chosen(partitions)
        self.native.pause([_native(one) for one in chosen])
        self._handed.hold(chosen)

    def resume(self, partitions: Iterable[tuple[str, int]] | None = None) -> None:
        chosen = self._chosen(partitions)
        self.native.resume([_native(one) for one in chosen])
        self._handed.release(chosen)

    def seek(self, partition: tuple[str, int], offset: int) -> None:
        """Continues reading at `offset`. The partition must be assigned."""
        where = TopicPartition(*partition)
        deadline_s = time.monotonic() + SEEK_WAIT_S
        while True:
            try:
                self.native.seek(_native(where, offset))
                break
            except KafkaException as problem:
                # Assigned, but librdkafka has not started to fetch it yet.
                if problem.args[0].code() != KafkaError._STATE or time.monotonic() > deadline_s:
                    raise ConsumeFailed.of(f"seek in {where.topic}[{where.partition}]", problem.args[0]) from problem
                time.sleep(0.01)
        self._handed.drop([where])
        self._committed.pop(where, None)

    def seek_to_beginning(self, partitions: Iterable[tuple[str, int]] | None = None) -> None:
        for one in self._chosen(partitions):
            self.seek(one, OFFSET_BEGINNING)

    def seek_to_end(self, partitions: Iterable[tuple[str, int]] | None = None) -> None:
        """Continues with records written from now on; asks the brokers for the end offsets."""
        # Not with librdkafka's OFFSET_END, which is resolved later: records written until then would be skipped.
        for one in self._chosen(partitions):
            self.seek(one, self.end_offset(one))

    def seek_to_time(
        self, when: datetime | int, partitions: Iterable[tuple[str, int]] | None = None
    ) -> dict[TopicPartition, int | None]:
        """Continues at the first record at or after `when`: a time, or ms since 1970.

        A result of None means that there is no such record yet; reading continues with records written from now on.
        """
        timestamp_ms = round(when.timestamp() * 1000) if isinstance(when, datetime) else when
        chosen = self._chosen(partitions)
        ends = {one: self.end_offset(one) for one in chosen}
        asked = [_native(one, timestamp_ms) for one in chosen]
        found: dict[TopicPartition, int | None] = {}
        try:
            answers = self.native.offsets_for_times(asked, timeout=self._api_timeout_s)
        except KafkaException as problem:
            raise ConsumeFailed.of("offsets by time", problem.args[0]) from problem
        for answer in answers:
            if answer.error is not None:
                raise ConsumeFailed.of(f"offsets by time of {answer.topic}[{answer.partition}]", answer.error)
            where = TopicPartition(answer.topic, answer.partition)
            found[where] = answer.offset if answer.offset >= 0 else None
            self.seek(where, ends[where] if answer.offset < 0 else answer.offset)
        return found

    def position(self, partition: tuple[str, int]) -> int | None:
        """The offset of the next record to deliver; None before the first."""
        where = TopicPartition(*partition)
        ahead = self._handed.unfinished(given_too=False).get(where)
        if ahead is not None:
            return ahead
        offset = self.native.position([_native(where)])[0].offset
        return offset if offset >= 0 else None

    def end_offset(self, partition: tuple[str, int]) -> int:
        """The offset that the partition's next record will get; asks the broker."""
        return self._watermarks(TopicPartition(*partition))[1]

    def lag(self) -> dict[TopicPartition, int]:
        """The number of records per partition that were not delivered yet; asks the brokers."""
        lags: dict[TopicPartition, int] = {}
        for where in self.assignment():
            start, end = self._watermarks(where)
            position = self.position(where)
            if position is None:
                position = self.committed([where]).get(where)
            if position is None:
                from_end = self.options.properties["auto.offset.reset"] in ("latest", "largest", "end")
                position = end if from_end else start
            lags[where] = max(0, end - max(position, start))
        return lags

    # Committing

    def commit(self, offsets: Offsets | Message | None = None) -> None:
        """Commits and waits: these offsets, or up to this record, or up to all delivered records.

        Raises CommitFailed, at once if the error is not retriable, else after `default.api.timeout.ms`.
        """
        wanted = self._wanted(offsets)
        if not wanted:
            return
        deadline_s = time.monotonic() + self._api_timeout_s
        while True:
            started_s = time.monotonic()
            failure = self._commit_once(wanted)
            self.metrics.commits += 1
            self.metrics.commit_latency.record((time.monotonic() - started_s) * 1000)
            if failure is None:
                self._committed |= wanted
                return
            self.metrics.failed_commits += 1
            if failure.code() not in _PASSES or time.monotonic() > deadline_s:
                raise CommitFailed.of(f"commit of {len(wanted)} partitions for {self.group}", failure)
            time.sleep(RETRY_STEP_S)

    def commit_async(self, offsets: Offsets | Message | None = None) -> None:
        """Commits without waiting; a later `poll` calls `on_commit`. A failure is logged, not retried."""
        wanted = self._wanted(offsets)
        if not wanted:
            return
        self._asked_s.append(time.monotonic())
        self.metrics.commits += 1
        self.native.commit(offsets=[_native(one, offset) for one, offset in wanted.items()], asynchronous=True)

    def committed(self, partitions: Iterable[tuple[str, int]] | None = None) -> dict[TopicPartition, int]:
        """The group's committed offsets; partitions without a commit are left out."""
        asked = [_native(one) for one in self._chosen(partitions)]
        try:
            found = self.native.committed(asked, timeout=self._api_timeout_s)
        except KafkaException as problem:
            raise CommitFailed.of(f"committed offsets of {self.group}", problem.args[0]) from problem
        return {TopicPartition(one.topic, one.partition): one.offset for one in found if one.offset >= 0}

    # Transactions of a producer: see `penstock.client.transactions`

    def _join_transaction(self) -> None:
        if self.group is None:
            raise SettingsError("group.id", "offsets in a transaction need a group: give group=…")
        self.auto_commit = False
        if self._since_commit is None:
            self._since_commit = SinceCommit()
            self._since_commit.deliver(self._handed.batch[: self._handed.given])

    def _transaction_offsets(self, offsets: Offsets | None) -> dict[TopicPartition, int]:
        assert self._since_commit is not None
        if moved := self._since_commit.moved:
            names = ", ".join(f"{topic}[{partition}]" for topic, partition in moved)
            raise TransactionAborted(
                f"{names} moved to another member of {self.group} while its records were being processed here; the new "
                "owner processes them again, so nothing of this transaction may become visible"
            )
        return self._wanted(offsets)

    def _transaction_committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        assert self._since_commit is not None
        self._since_commit.commit()
        self._since_commit.deliver(self._handed.batch[self._handed.given :])
        self._committed |= offsets

    def _transaction_aborted(self) -> None:
        assert self._since_commit is not None
        mine = set(self.assignment())
        for where, offset in self._since_commit.abort().items():
            if where in mine:
                self.seek(where, offset)

    def _transaction_unsettled(self, problem: TransactionFatal) -> None:
        """The fate of the delivered records is not known here, so this consumer must not continue behind them."""
        self._unsettled = problem

    # Closing

    def close(self) -> None:
        """Commits the records that are done (with auto-commit), and leaves the group."""
        self._close(clean=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(clean=kind is None or not issubclass(kind, Exception))

    def _close(self, *, clean: bool) -> None:
        if self._closed:
            return
        self._closed = self._stopped = True
        if self._handed.whole and clean:
            self._handed.finish_batch()
        try:
            # Done here: inside librdkafka's close, the rebalance callback could no longer be answered.
            if self._subscribed:
                self._give_back(self.assignment())
            elif self.auto_commit:
                self._commit_quietly(self._positions(given_too=True))
        finally:
            self._given_back = True
            if self._subscribed:
                close_member(self.native, self.options.properties)
            else:
                self.native.close()

    def _next_batch(self, timeout_s: float, limit: int, *, whole: bool) -> list[Message]:
        if self._unsettled is not None:
            raise self._unsettled
        # Asking for more marks everything delivered so far as done.
        self._commit_if_due()
        handed = self._handed
        batch = handed.take_rest()
        if len(batch) > limit:
            handed.keep(batch[limit:])
            batch = batch[:limit]
        if not batch:
            batch = self._fetched(timeout_s, limit)
        handed.start(batch, whole=whole)
        if self._since_commit is not None:
            self._since_commit.deliver(batch)
        return batch

    def _fetched(self, timeout_s: float, limit: int) -> list[Message]:
        # `consume` alone would wait for a full batch or the whole timeout, so poll for the first record.
        first = self.native.poll(timeout_s)
        if first is None:
            return []
        # Store the first record where a rebalance can drop it: the next call may revoke its partition.
        self._handed.keep([first])
        more = self.native.consume(limit - 1, 0) if limit > 1 else []
        batch = [*self._handed.take_rest(), *more]
        good = [message for message in batch if message.error() is None]
        if len(good) < len(batch):
            self._handed.keep(good)
            for message in batch:
                self._check(message)
            good = self._handed.take_rest()
        return good

    def _check(self, message: Message) -> None:
        error = message.error()
        if error is None or error.code() == KafkaError._PARTITION_EOF:
            return
        if error.fatal() or error.code() in _STOPS:
            where = f"{message.topic()}[{message.partition()}]" if message.topic() else str(self.group)
            raise ConsumeFailed.of(where, error)
        log.warning("%s: %s", message.topic() or self.group, error.str())

    def _commit_is_due(self) -> bool:
        return self.auto_commit and time.monotonic() >= self._commit_due_s

    def _commit_if_due(self) -> None:
        if not self._commit_is_due():
            return
        self._commit_due_s = time.monotonic() + self._interval_s
        positions = self._positions(given_too=False)
        if positions:
            self.commit_async(positions)

    def _wanted(self, offsets: Offsets | Message | None) -> dict[TopicPartition, int]:
        if offsets is None:
            return self._positions(given_too=False)
        if isinstance(offsets, Message):
            topic, partition, offset = offsets.topic(), offsets.partition(), offsets.offset()
            assert topic is not None
            assert partition is not None
            assert offset is not None
            return {TopicPartition(topic, partition): offset + 1}
        return {TopicPartition(*where): offset for where, offset in offsets.items()}

    def _positions(self, *, given_too: bool) -> dict[TopicPartition, int]:
        """Offsets to commit that advanced since the last commit. `given_too`: count delivered records as unfinished."""
        unfinished = self._handed.unfinished(given_too=given_too)
        positions: dict[TopicPartition, int] = {}
        for one in self.native.position(self.native.assignment()):
            where = TopicPartition(one.topic, one.partition)
            offset = unfinished.get(where, one.offset)
            if offset >= 0 and self._committed.get(where) != offset:
                positions[where] = offset
        return positions

    def _commit_once(self, offsets: Mapping[TopicPartition, int]) -> KafkaError | None:
        try:
            done = self.native.commit(
                offsets=[_native(one, offset) for one, offset in offsets.items()], asynchronous=False
            )
        except KafkaException as problem:
            failure: KafkaError = problem.args[0]
            return None if failure.code() == KafkaError._NO_OFFSET else failure
        return next((one.error for one in done if one.error is not None), None)

    def _commit_quietly(self, offsets: dict[TopicPartition, int]) -> None:
        """Commits where the caller cannot handle a failure; the records are repeated, which at-least-once allows."""
        if not offsets:
            return
        try:
            self.commit(offsets)
        except CommitFailed as problem:
            log.warning("%s", problem)

    def _watermarks(self, where: TopicPartition) -> tuple[int, int]:
        try:
            start, end = self.native.get_watermark_offsets(_native(where), timeout=self._api_timeout_s)
        except KafkaException as problem:
            raise ConsumeFailed.of(f"offsets of {where.topic}[{where.partition}]", problem.args[0]) from problem
        return start, end

    def _chosen(self, partitions: Iterable[tuple[str, int]] | None) -> list[TopicPartition]:
        return self.assignment() if partitions is None else [TopicPartition(*one) for one in partitions]

    # librdkafka's callbacks, called from within `poll`

    def _assigned(self, native: NativeConsumer, partitions: list[NativePartition]) -> None:
        if self._given_back:
            return
        names = _named(partitions)
        for one in names:
            self._committed.pop(one, None)
        if self._store is not None:
            saved = self._store.load(names)
            placed = [_native(one, saved.get(one)) for one in names]
            (native.incremental_assign if self._incremental else native.assign)(placed)
        for on_assign, _, _ in self._listeners:
            if on_assign is not None:
                on_assign(names)

    def _revoked(self, native: NativeConsumer, partitions: list[NativePartition]) -> None:
        if not self._given_back:
            self._give_back(_named(partitions))

    def _give_back(self, names: list[TopicPartition]) -> None:
        for _, on_revoke, _ in self._listeners:
            if on_revoke is not None:
                on_revoke(names)
        if self.auto_commit:
            going = set(names)
            positions = self._positions(given_too=True)
            self._commit_quietly({one: offset for one, offset in positions.items() if one in going})
        self._forget(names)

    def _lost(self, native: NativeConsumer, partitions: list[NativePartition]) -> None:
        if self._given_back:
            return
        names = _named(partitions)
        self._forget(names)
        for _, _, on_lost in self._listeners:
            if on_lost is not None:
                on_lost(names)

    def _forget(self, partitions: list[TopicPartition]) -> None:
        self._handed.drop(partitions)
        if self._since_commit is not None:
            self._since_commit.move(partitions)
        for one in partitions:
            self._committed.pop(one, None)

    def _on_commit(self, error: KafkaError | None, partitions: list[NativePartition]) -> None:
        if self._asked_s:
            self.metrics.commit_latency.record((time.monotonic() - self._asked_s.popleft()) * 1000)
        failure = error or next((one.error for one in partitions if one.error is not None), None)
        if failure is None:
            self._committed |= {TopicPartition(one.topic, one.partition): one.offset for one in partitions}
        elif failure.code() != KafkaError._NO_OFFSET:
            self.metrics.failed_commits += 1
            log.warning("a commit for %s failed: %s", self.group, failure.str())

    def _native_settings(self) -> dict[str, Any]:
        callbacks: dict[str, Any] = dict(self.options.callbacks)
        on_commit, stats_cb, error_cb = (callbacks.get(name) for name in ("on_commit", "stats_cb", "error_cb"))

        def committed(error: KafkaError | None, partitions: list[NativePartition]) -> None:
            self._on_commit(error, partitions)
            if on_commit is not None:
                on_commit(error, partitions)

        def statistics(text: str) -> None:
            self.metrics.take_statistics(text)
            if stats_cb is not None:
                stats_cb(text)

        def complaint(error: KafkaError) -> None:
            if error_cb is not None:
                error_cb(error)
            else:
                log.log(logging.ERROR if error.fatal() else logging.WARNING, "%s", error.str())

        native = {"group.id": NO_GROUP, **self.options.native, **callbacks}
        return {**native, "on_commit": committed, "stats_cb": statistics, "error_cb": complaint}


def _native(partition: tuple[str, int], offset: int | None = None) -> NativePartition:
    return NativePartition(*partition) if offset is None else NativePartition(*partition, offset)


def _named(partitions: Iterable[NativePartition]) -> list[TopicPartition]:
    return [TopicPartition(one.topic, one.partition) for one in partitions]
