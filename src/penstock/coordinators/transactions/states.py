"""The states of a transactional id, with Kafka's numbers and names, and the changes between them.

state              meaning
Empty              a producer has its epoch; no transaction was opened since
Ongoing            a transaction is open: partitions may be added
PrepareCommit      decided; markers are being written
PrepareAbort       decided; markers are being written
CompleteCommit     all partitions have their markers; the next transaction may start
CompleteAbort      likewise
PrepareEpochFence  (never stored) the producer is fenced: its transaction is about to be aborted
Dead               (never stored) the id has expired; its record is a tombstone
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class State(IntEnum):
    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """Kafka's name, as in DescribeTransactions."""
        return LABELS[self]


LABELS: Final = {state: state.name.title().replace("_", "") for state in State}
BY_LABEL: Final = {label: state for state, label in LABELS.items()}

RESTING: Final = (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
"""No transaction is open, and none is being ended."""
PREPARED: Final = (State.PREPARE_COMMIT, State.PREPARE_ABORT)
"""The outcome is decided, and markers are being written."""

FROM: Final[dict[State, tuple[State, ...]]] = {
    # new state: the states that may precede it                          cause
    State.EMPTY: RESTING,  # InitProducerId
    State.ONGOING: (*RESTING, State.ONGOING),  # a partition was added
    State.PREPARE_COMMIT: (State.ONGOING,),  # EndTxn
    # EndTxn. In version 2 a producer may abort a transaction to which nothing was added, to get a new epoch.
    State.PREPARE_ABORT: (*RESTING, State.ONGOING, State.PREPARE_EPOCH_FENCE),
    State.COMPLETE_COMMIT: (State.PREPARE_COMMIT,),  # all markers are written
    State.COMPLETE_ABORT: (State.PREPARE_ABORT,),  # all markers are written
    State.PREPARE_EPOCH_FENCE: (State.ONGOING,),  # InitProducerId, or a timeout
    State.DEAD: RESTING,  # unused for transactional.id.expiration.ms
}
