"""Aborts transactions that take longer than their timeout, and forgets transactional ids that are not used any more.

Both look at everything at fixed intervals, as in Kafka, so an id or a transaction needs no timer of its own.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from penstock.coordinators.shard import TimerKey, Turn
from penstock.coordinators.transactions.ending import Ending
from penstock.coordinators.transactions.states import State
from penstock.coordinators.transactions.table import TransactionTable
from penstock.coordinators.transactions.transaction import packed_updated_ms

ABORTED_PER_TURN_MAX: Final = 100
FORGOTTEN_PER_TURN_MAX: Final = 500
EXAMINED_PER_TURN_MAX: Final = 10_000

_TIMEOUTS: Final = ("timeouts",)
_EXPIRY: Final = ("expiry",)


class Expiry:
    def __init__(self, table: TransactionTable, ending: Ending) -> None:
        self._table = table
        self._ending = ending
        self._remaining: list[str] = []
        """Ids that the current round has still to examine."""

    def schedule(self, turn: Turn) -> None:
        config = self._table.config
        turn.set_timer(
            _TIMEOUTS, config.transaction_abort_timed_out_transaction_cleanup_interval_ms, self._abort_timed_out
        )
        turn.set_timer(
            _EXPIRY, config.transaction_remove_expired_transaction_cleanup_interval_ms, self._begin_forgetting
        )

    def _abort_timed_out(self, turn: Turn, key: TimerKey) -> None:
        config = self._table.config
        late = (
            transaction
            for transaction in self._table.active.values()
            if transaction.state is State.ONGOING and transaction.deadline_ms <= turn.now_ms
        )
        some = list(islice(late, ABORTED_PER_TURN_MAX))
        for transaction in some:
            self._ending.fence(turn, transaction)
            config.counts.timed_out += 1
        more = len(some) == ABORTED_PER_TURN_MAX
        delay_ms = 0 if more else config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        turn.set_timer(_TIMEOUTS, delay_ms, self._abort_timed_out)

    def _begin_forgetting(self, turn: Turn, key: TimerKey) -> None:
        self._remaining = list(self._table.resting)
        self._forget_some(turn, key)

    def _forget_some(self, turn: Turn, key: TimerKey) -> None:
        config = self._table.config
        oldest_ms = turn.wall_ms - config.transactional_id_expiration_ms
        remaining, resting = self._remaining, self._table.resting
        forgotten = 0
        for _ in range(min(len(remaining), EXAMINED_PER_TURN_MAX)):
            transactional_id = remaining.pop()
            packed = resting.get(transactional_id)
            if packed is not None and packed_updated_ms(packed) <= oldest_ms:
                self._table.remove(turn, transactional_id)
                forgotten += 1
                if forgotten == FORGOTTEN_PER_TURN_MAX:
                    break
        if remaining:
            turn.set_timer(_EXPIRY, 0, self._forget_some)
        else:
            interval_ms = config.transaction_remove_expired_transaction_cleanup_interval_ms
            turn.set_timer(_EXPIRY, interval_ms, self._begin_forgetting)
