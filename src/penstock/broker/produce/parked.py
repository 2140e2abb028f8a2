"""Produce requests that cannot be answered yet.

Either their records are appended and wait to be committed (acks=all) or stable (acks=1, if `flush.*` requires a sync).
Or their batches are still being decompressed, checked or recompressed, or wait for a transaction coordinator
(`preparing`), and are appended after that. The response is sent when the last partition of the request is done, or at
the timeout.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from penstock.broker.net.connection import Slot
from penstock.broker.observability.metrics import BrokerMetrics
from penstock.broker.produce.preparing import Preparation
from penstock.broker.produce.response import Result, TopicResults, encode, refused
from penstock.broker.produce.verifying import TransactionalBatch
from penstock.broker.replicas.partition import Partition
from penstock.log import Appended
from penstock.runtime import Runtime, Timer
from penstock.wire.errors import ErrorCode, KafkaError


class Wait(NamedTuple):
    """The part of one partition, which waits until everything below `offset` is committed (or stable, with acks=1)."""

    topic_number: int
    partition_number: int
    partition: Partition
    offset: int
    acks: int
    records: bytearray | None = None
    """Batches to be prepared and appended first."""
    transactional: TransactionalBatch | None = None
    """Set if the transaction coordinator must be asked before that."""


class ParkedProduce:
    """A produce request that waits for its records to be committed, or for its timeout."""

    __slots__ = (
        "_correlation_id",
        "_is_late",
        "_metrics",
        "_remaining",
        "_results",
        "_slot",
        "_throttle_ms",
        "_timer",
        "_version",
        "_waits",
    )

    def __init__(
        self,
        runtime: Runtime,
        metrics: BrokerMetrics,
        preparation: Preparation,
        slot: Slot,
        version: int,
        correlation_id: int,
        results: TopicResults,
        waits: list[Wait],
        timeout_ms: int,
        throttle_ms: int,
    ) -> None:
        self._metrics = metrics
        self._slot = slot
        self._version = version
        self._correlation_id = correlation_id
        self._results = results
        self._waits = waits
        self._remaining = len(waits)
        self._throttle_ms = throttle_ms
        self._is_late = False
        """The timeout has passed: batches still being prepared will not be waited for once they are appended."""
        self._timer: Timer = runtime.call_later(max(timeout_ms, 0), self._timed_out)
        allowance = preparation.allowance()
        for token, wait in enumerate(waits):
            if wait.records is not None:
                done = partial(self._appended, token)
                preparation.submit(wait.partition, wait.records, wait.acks, allowance, done, wait.transactional)
            elif wait.partition.await_commit(wait.offset, wait.acks, self, token):
                self.reached(token, ErrorCode.NONE)

    def _appended(self, token: int, appended: Appended | KafkaError) -> None:
        """The batches were prepared and appended, or refused."""
        wait = self._waits[token]
        # The copy no longer counts towards the limit, so it must not stay in memory until the commit.
        self._waits[token] = wait._replace(records=None)
        outcome = self._results[wait.topic_number][1]
        if isinstance(appended, KafkaError):
            outcome[wait.partition_number] = refused(wait.partition, appended)
            self._metrics.failed_produce += 1
            self.reached(token, ErrorCode.NONE)
            return
        log = wait.partition.log
        start = -1 if log is None else log.start_offset
        first, last, append_time_ms, duplicate = appended
        outcome[wait.partition_number] = Result(wait.partition.index, 0, first, append_time_ms, start)
        if not duplicate:
            self._metrics.messages_in += last - first + 1
            self._metrics.bytes_in += len(wait.records or b"")
        if not wait.acks or wait.partition.await_commit(last + 1, -1 if duplicate else wait.acks, self, token):
            self.reached(token, ErrorCode.NONE)
        elif self._is_late and wait.partition.forget(self, token):
            self.reached(token, ErrorCode.REQUEST_TIMED_OUT)

    def reached(self, token: int, error: ErrorCode) -> None:
        """Called by the code that advanced the partition, which must not be affected by errors here."""
        try:
            self._reached(token, error)
        except Exception as failure:
            self._slot.connection.fail(failure)

    def _reached(self, token: int, error: ErrorCode) -> None:
        if error:
            wait = self._waits[token]
            outcome = self._results[wait.topic_number][1]
            outcome[wait.partition_number] = refused(wait.partition, KafkaError(error))
        self._remaining -= 1
        if self._remaining:
            return
        self._timer.cancel()
        if self._waits[token].acks:
            self._slot.send(encode(self._version, self._correlation_id, self._results, self._throttle_ms))
            return
        self._slot.send(b"")
        check_unanswered(self._results)

    def _timed_out(self) -> None:
        self._is_late = True
        for token, wait in enumerate(self._waits):
            if wait.partition.forget(self, token):
                self.reached(token, ErrorCode.REQUEST_TIMED_OUT)


def check_unanswered(results: TopicResults) -> None:
    """Raises KafkaError if a partition failed. With acks=0 there is no response; closing the connection tells the
    producer of the error."""
    for _, outcome in results:
        for result in outcome:
            if result.error:
                raise KafkaError(ErrorCode(result.error), result.message or "acks=0 produce failed")
