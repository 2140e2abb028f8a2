"""What each kind of error leads to: retried, aborted, fatal, or an unknown outcome. Scripted, without brokers."""

from __future__ import annotations

from collections import defaultdict, deque
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock.client.buffer import BufferAccount
from penstock.client.delivery import Deliveries
from penstock.client.errors import (
    OutcomeUnknown,
    ProducerFenced,
    TransactionAborted,
    TransactionFatal,
    TransactionTimedOut,
)
from penstock.client.since_commit import SinceCommit
from penstock.client.transactions import Transaction, Transactions

RETRIABLE = KafkaError(KafkaError._TIMED_OUT, "no answer", retriable=True)
ABORTABLE = KafkaError(KafkaError.INVALID_TXN_STATE, "abort it", txn_requires_abort=True)
TOO_LARGE = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, "too large", txn_requires_abort=True)
FENCED = KafkaError(KafkaError._FENCED, "fenced", fatal=True)
FATAL = KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "may not", fatal=True)


class Native:
    """librdkafka's producer as far as transactions go: each call raises the next error of its list, or succeeds."""

    def __init__(self, **errors: list[KafkaError]) -> None:
        self.errors: dict[str, deque[KafkaError]] = defaultdict(deque)
        self.calls: list[str] = []
        for name, those in errors.items():
            self.errors[name].extend(those)

    def __getattr__(self, name: str) -> Any:
        kind = name.removesuffix("_transactions").removesuffix("_transaction").removesuffix("_to_transaction")

        def call(*_: object) -> None:
            self.calls.append(kind)
            if self.errors[kind]:
                raise KafkaException(self.errors[kind].popleft())

        return call


def transactions(native: Native, max_block_s: float = 60) -> Transactions:
    sending = SimpleNamespace(
        options=SimpleNamespace(properties={"transactional.id": "t"}),
        native=native,
        max_block_s=max_block_s,
        deliveries=Deliveries(BufferAccount(1024)),
    )
    return Transactions(cast(Any, sending))


def run(made: Transactions) -> None:
    with Transaction(made, None):
        pass


def test_retriable_errors_are_repeated_until_it_works() -> None:
    native = Native(init=[RETRIABLE], commit=[RETRIABLE, RETRIABLE])
    made = transactions(native)
    run(made)
    run(made)
    assert native.calls == ["init", "init", "begin", "commit", "commit", "commit", "begin", "commit"]


def test_an_initialisation_that_takes_too_long_may_be_called_again() -> None:
    native = Native(init=[RETRIABLE])
    made = transactions(native, max_block_s=0)
    with pytest.raises(TransactionTimedOut):
        made.init()
    made.init()


@pytest.mark.parametrize(("error", "permanent"), [(ABORTABLE, False), (TOO_LARGE, True)])
def test_an_abortable_error_aborts_and_the_next_transaction_works(error: KafkaError, permanent: bool) -> None:
    native = Native(commit=[error])
    made = transactions(native)
    with pytest.raises(TransactionAborted) as caught:
        run(made)
    assert caught.value.permanent is permanent
    run(made)
    assert native.calls == ["init", "begin", "commit", "abort", "begin", "commit"]


@pytest.mark.parametrize(
    "errors", [[RETRIABLE, ABORTABLE], [RETRIABLE, FATAL], [FATAL]], ids=["then abortable", "then fatal", "fatal"]
)
def test_a_commit_that_was_requested_and_then_failed_has_an_unknown_outcome(errors: list[KafkaError]) -> None:
    native = Native(commit=errors)
    made = transactions(native)
    with pytest.raises(OutcomeUnknown):
        run(made)
    assert "abort" not in native.calls, "an abort would be a guess"
    with pytest.raises(OutcomeUnknown):
        run(made)


def test_a_commit_without_an_answer_has_an_unknown_outcome() -> None:
    made = transactions(Native(commit=[RETRIABLE] * 2), max_block_s=0)
    with pytest.raises(OutcomeUnknown):
        run(made)


@pytest.mark.parametrize("step", ["init", "begin", "commit"])
def test_a_fenced_producer_says_so_at_every_step_and_from_then_on(step: str) -> None:
    native = Native(**{step: [FENCED]})
    made = transactions(native)
    for _ in range(2):
        with pytest.raises(ProducerFenced):
            run(made)
    assert native.calls[-1] == step


def test_an_abort_that_fails_is_fatal_but_does_not_hide_the_error_of_the_block() -> None:
    made = transactions(Native(abort=[ABORTABLE]))
    with pytest.raises(ZeroDivisionError), Transaction(made, None):
        raise ZeroDivisionError
    with pytest.raises(TransactionFatal):
        run(made)


def test_an_interrupt_during_the_commit_leaves_an_unknown_outcome() -> None:
    native = Native()
    made = transactions(native)
    transaction = Transaction(made, None)
    transaction.__enter__()
    native.__dict__["commit_transaction"] = interrupted
    with pytest.raises(KeyboardInterrupt):
        transaction.__exit__(None, None, None)
    assert "abort" not in native.calls
    assert isinstance(made.fatal, OutcomeUnknown)


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


class Record(SimpleNamespace):
    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return int(self.where)

    def offset(self) -> int:
        return int(self.number)


def test_an_abort_goes_back_to_the_first_record_since_the_last_commit() -> None:
    since = SinceCommit()
    since.deliver([Record(where=0, number=5), Record(where=0, number=6), Record(where=1, number=9)])
    since.commit()
    since.deliver([Record(where=0, number=7)])
    since.deliver([Record(where=0, number=8)])
    assert since.abort() == {("t", 0): 7}
    assert since.abort() == {}


def test_a_partition_that_moves_with_uncommitted_records_is_told_until_the_next_commit_or_abort() -> None:
    since = SinceCommit()
    since.deliver([Record(where=0, number=5)])
    since.move([("t", 0), ("t", 1)])
    assert since.moved == [("t", 0)]
    assert since.abort() == {}
    assert since.moved == []
