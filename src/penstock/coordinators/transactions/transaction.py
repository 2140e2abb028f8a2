"""The state of one transactional id."""

from __future__ import annotations

from struct import Struct
from typing import Final

from penstock.coordinators.transactions.states import FROM, PREPARED, RESTING, State

EPOCH_MAX: Final = 32_767
"""The largest epoch of the protocol. Only markers have it."""
LAST_EPOCH: Final = EPOCH_MAX - 1
"""The largest epoch of a producer, so that it can still be fenced."""
NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NOT_STARTED: Final = -1

VERSION_2: Final = 2
"""The version (KIP-890) from which on each EndTxn raises the epoch."""

TopicPartition = tuple[str, int]

_RESTING: Final = Struct(">qqhhibqqb")
"""Producer id, previous id, epoch, last epoch, timeout, state, start, last update, version."""


class Transaction:
    """A transactional id, with its open transaction if it has one."""

    __slots__ = (
        "deadline_ms",
        "last_epoch",
        "next_producer_id",
        "partitions",
        "previous_producer_id",
        "producer_epoch",
        "producer_id",
        "started_ms",
        "state",
        "timeout_ms",
        "transactional_id",
        "unmarked",
        "updated_ms",
        "version",
    )

    def __init__(self, transactional_id: str, producer_id: int, timeout_ms: int, wall_ms: int) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.previous_producer_id = NO_PRODUCER_ID
        """The producer id before the last one ran out of epochs."""
        self.next_producer_id = NO_PRODUCER_ID
        """The producer id that replaces this one when all markers are written."""
        self.producer_epoch = NO_EPOCH
        self.last_epoch = NO_EPOCH
        """The epoch before the last raise, for a producer whose answer was lost. Not in the log, as in Kafka."""
        self.timeout_ms = timeout_ms
        self.state = State.EMPTY
        self.partitions: dict[TopicPartition, None] = {}
        self.started_ms = NOT_STARTED
        self.updated_ms = wall_ms
        self.version = 0
        """2 from KIP-890 on; 0 for all clients before, as in Kafka's records."""
        self.deadline_ms = 0.0
        """When the open transaction times out, on the monotonic clock."""
        self.unmarked: dict[TopicPartition, None] = {}
        """Partitions whose markers are not acknowledged yet. Not in the log: the next coordinator sends all again."""

    @property
    def is_resting(self) -> bool:
        return self.state in RESTING

    @property
    def is_prepared(self) -> bool:
        return self.state in PREPARED

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer id has no further epoch for a producer."""
        return self.producer_epoch >= LAST_EPOCH

    def change(self, state: State, wall_ms: int) -> None:
        assert self.state in FROM[state], f"{self.transactional_id}: {self.state.label} cannot become {state.label}"
        self.state = state
        self.updated_ms = wall_ms

    def packed(self) -> bytes:
        """A compact form of an id at rest."""
        assert self.is_resting
        assert not self.partitions
        assert self.next_producer_id == NO_PRODUCER_ID
        return _RESTING.pack(
            self.producer_id,
            self.previous_producer_id,
            self.producer_epoch,
            self.last_epoch,
            self.timeout_ms,
            self.state,
            self.started_ms,
            self.updated_ms,
            self.version,
        )


def unpacked(transactional_id: str, packed: bytes) -> Transaction:
    producer_id, previous, epoch, last_epoch, timeout_ms, state, started_ms, updated_ms, version = _RESTING.unpack(
        packed
    )
    transaction = Transaction(transactional_id, producer_id, timeout_ms, updated_ms)
    transaction.previous_producer_id = previous
    transaction.producer_epoch = epoch
    transaction.last_epoch = last_epoch
    transaction.state = State(state)
    transaction.started_ms = started_ms
    transaction.version = version
    return transaction


def packed_updated_ms(packed: bytes) -> int:
    """When an id at rest was last used."""
    updated_ms: int = _RESTING.unpack(packed)[7]
    return updated_ms


def packed_summary(packed: bytes) -> tuple[int, State, int]:
    """(producer id, state, start) of an id at rest, for lists."""
    fields = _RESTING.unpack(packed)
    return fields[0], State(fields[5]), fields[6]
