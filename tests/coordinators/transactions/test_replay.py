"""Records: Kafka's bytes, and a shard that loads them has the same state, whatever was done before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coordinators.transactions.harness import Transactions
from penstock.coordinators.transactions.records import key_of, transactional_id_of, value_of
from penstock.coordinators.transactions.states import State
from penstock.coordinators.transactions.transaction import Transaction
from penstock.wire.codec import decode_whole
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.transaction_records import TransactionLogKey, TransactionLogValue


def test_keys_and_values_are_kafkas() -> None:
    transaction = Transaction("my-id", 7, 60_000, 1_700_000_000_001)
    transaction.producer_epoch = 3
    transaction.state = State.ONGOING
    transaction.started_ms = 1_700_000_000_000
    transaction.partitions = {("t", 0): None, ("t", 2): None}
    assert key_of("my-id") == b"\x00\x00\x00\x05my-id"
    assert decode_whole(TransactionLogKey, 0, key_of("my-id")[2:]).transactional_id == "my-id"
    old = value_of(transaction, flexible=False)
    assert old.hex() == (
        "0000" "0000000000000007" "0003" "0000ea60" "01"
        "00000001" "000174" "00000002" "00000000" "00000002"
        "0000018bcfe56801" "0000018bcfe56800"
    )  # fmt: skip
    transaction.version, transaction.previous_producer_id, transaction.next_producer_id = 2, 5, 9
    new = value_of(transaction, flexible=True)
    assert new.hex() == (
        "0001" "0000000000000007" "0003" "0000ea60" "01"
        "02" "0274" "03" "00000000" "00000002" "00"
        "0000018bcfe56801" "0000018bcfe56800"
        "03" "0008" "0000000000000005" "0108" "0000000000000009" "0202" "0002"
    )  # fmt: skip
    assert decode_whole(TransactionLogValue, 1, new[2:]).next_producer_epoch == -1


def test_an_empty_id_has_null_for_its_partitions_and_records_of_other_types_are_ignored() -> None:
    transaction = Transaction("x", 7, 60_000, 1)
    transaction.producer_epoch = 0
    assert decode_whole(TransactionLogValue, 1, value_of(transaction, flexible=True)[2:]).transaction_partitions is None
    assert transactional_id_of(b"\x00\x01\x00\x01x") is None


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["init", "resume", "add", "old add", "commit", "abort", "old commit", "mark", "refuse", "wait"]
        ),
        st.sampled_from("ab"),
        st.integers(0, 3),
    ),
    max_size=40,
)


@given(STEPS, st.integers(0, 2))
def test_loading_the_log_reproduces_the_state(steps: list[tuple[str, str, int]], level: int) -> None:
    t = Transactions(version=level)
    known: dict[str, tuple[int, int]] = {}
    for verb, name, partition in steps:
        producer = known.get(name, (0, 0))
        answer: tuple[int, int] | ErrorCode = ErrorCode.NONE
        if verb == "init":
            answer = t.init(name)
        elif verb == "resume":
            answer = t.init(name, producer)
        elif verb in ("add", "old add"):
            t.add(producer, partition, name=name, version=5 if verb == "add" else 3)
        elif verb in ("commit", "abort"):
            answer = t.end(producer, verb == "commit", name=name)
        elif verb == "old commit":
            t.commit(producer, name=name, version=4)
        elif verb == "mark":
            t.acknowledge()
        elif verb == "refuse":
            t.acknowledge(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        else:
            t.advance(30_000)
        if isinstance(answer, tuple):
            assert answer[1] >= 0
            known[name] = answer
    t.acknowledge()
    state = t.transactions.durable_state()
    t.failover()
    t.acknowledge()
    while any(one == "PrepareCommit" for one in t.listed().values()):
        t.advance(100)
        t.acknowledge()
    assert set(state) == set(t.transactions.durable_state())
    if not any(item[0] in (State.PREPARE_ABORT, State.PREPARE_COMMIT) for item in state.values()):  # type: ignore[index]
        assert state == t.transactions.durable_state()
    assert t.transactions.config.counts.markers == 0
