"""What the quorum writes to disk: control batches, snapshots, the quorum-state file."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.raft import (
    Endpoint,
    HardState,
    KRaftVersion,
    LeaderChange,
    LogBatch,
    OffsetAndEpoch,
    QuorumStateError,
    ReplicaKey,
    SnapshotError,
    Voter,
    Voters,
    VoterSet,
    batch_values,
    build_control_batch,
    decode_batches,
    encode_batch,
    format_quorum_state,
    parse_quorum_state,
    parse_snapshot_name,
    read_snapshot,
    snapshot_batches,
    snapshot_name,
)
from penstock.wire.errors import WireError
from penstock.wire.records import ControlRecordType, Record, build_batch, control_key, iter_batches

uuids = st.binary(min_size=16, max_size=16)
endpoints = st.builds(Endpoint, st.text(max_size=9), st.text(max_size=9), st.integers(0, 65535))
voter_sets = st.lists(
    st.builds(Voter, st.integers(0, 99), uuids, st.lists(endpoints, max_size=2).map(tuple)),
    max_size=5,
    unique_by=lambda voter: voter.id,
).map(VoterSet.of)


@given(voter_sets, st.integers(0, 1 << 40), st.integers(0, 1 << 30))
def test_control_batches_round_trip(voter_set: VoterSet, base_offset: int, epoch: int) -> None:
    control = (LeaderChange(1, voter_set.ids, voter_set.ids[:1]), KRaftVersion(1), Voters(voter_set))
    data = encode_batch(LogBatch(base_offset, 3, epoch, control=control), 1_700_000_000_000)
    (batch,) = decode_batches(data)
    assert batch == LogBatch(base_offset, 3, epoch, control=control, data=data)
    assert encode_batch(batch, 0) == data
    assert list(batch_values(batch)) == []


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=5).map(tuple))
def test_values_round_trip_and_keep_their_bytes(values: tuple[bytes, ...]) -> None:
    proposed = LogBatch(7, len(values), 3, values=values)
    data = encode_batch(proposed, 1_700_000_000_000)
    (fetched,) = decode_batches(data + data[:20])
    assert (fetched.base_offset, fetched.end_offset, fetched.epoch) == (7, 7 + len(values), 3)
    assert list(batch_values(fetched)) == list(batch_values(proposed)) == list(values)


def test_the_leader_change_is_byte_for_byte_kafkas() -> None:
    # Version 0 of LeaderChangeMessage, flexible: version, leader, voters, granting voters, no tagged fields.
    data = build_control_batch([LeaderChange(1, (1, 2), (1,))], 0, 1, 5)
    ((_, view),) = iter_batches(data)
    assert bytes.fromhex("0000 00000001 03 00000001 00 00000002 00 02 00000001 00 00") in bytes(view)
    assert control_key(ControlRecordType.LEADER_CHANGE) in bytes(view)


def test_an_unknown_control_record_is_refused() -> None:
    data = build_batch([Record(timestamp=1, key=b"\0\0\0\x63", value=b"")], base_offset=0, leader_epoch=1, control=True)
    with pytest.raises(WireError, match="needs a newer release"):
        list(decode_batches(data))


@pytest.mark.parametrize(
    "state",
    [
        HardState(),
        HardState(7, 2, ReplicaKey(1, bytes(range(16)))),
        HardState(7, -1, ReplicaKey(3, bytes(range(16))), suspect=True),
    ],
)
def test_the_quorum_state_round_trips(state: HardState) -> None:
    assert parse_quorum_state(format_quorum_state(state)) == state


def test_the_quorum_state_is_kafkas_json() -> None:
    text = format_quorum_state(HardState(2, -1, ReplicaKey(1, bytes.fromhex("27c6803dc7cb42dd9baacd494ffacc81"))))
    assert list(json.loads(text).items()) == [
        ("leaderId", -1),
        ("leaderEpoch", 2),
        ("votedId", 1),
        ("votedDirectoryId", "J8aAPcfLQt2bqs1JT_rMgQ"),
        ("data_version", 1),
        ("crc32c", 2354980598),
    ]


def test_a_quorum_state_without_a_checksum_is_kafkas_own() -> None:
    text = b'{"leaderId":2,"leaderEpoch":7,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
    assert parse_quorum_state(text) == HardState(7, 2)


def test_any_turned_bit_of_the_quorum_state_is_noticed() -> None:
    text = format_quorum_state(HardState(7, 2, ReplicaKey(1, bytes(range(16)))))
    for bit in range(8 * len(text)):
        turned = bytearray(text)
        turned[bit // 8] ^= 1 << bit % 8
        with pytest.raises(QuorumStateError):
            parse_quorum_state(bytes(turned))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "damaged"),
        (b'{"leaderId":1}', "damaged"),
        (b'{"leaderId":1,"leaderEpoch":1,"votedId":-1,"votedDirectoryId":"x","data_version":1}', "damaged"),
        (
            b'{"leaderId":1,"leaderEpoch":1,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":2}',
            "start the release that wrote it",
        ),
        (
            b'{"leaderId":1,"leaderEpoch":-1,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}',
            "negative epoch",
        ),
    ],
)
def test_a_quorum_state_that_cannot_be_trusted_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(QuorumStateError, match=reason):
        parse_quorum_state(data)


def test_snapshot_names_are_kafkas() -> None:
    assert snapshot_name(OffsetAndEpoch(0, 0)) == "00000000000000000000-0000000000.checkpoint"
    assert snapshot_name(OffsetAndEpoch(7513, 42)) == "00000000000000007513-0000000042.checkpoint"
    assert parse_snapshot_name("00000000000000007513-0000000042.checkpoint") == OffsetAndEpoch(7513, 42)
    for other in ("00000000000000007513-0000000042.checkpoint.part", "7513-42.checkpoint", "00000000000000007513.log"):
        assert parse_snapshot_name(other) is None


@given(voter_sets, st.lists(st.binary(max_size=200), max_size=2500))
def test_snapshots_round_trip(voter_set: VoterSet, values: list[bytes]) -> None:
    batches = list(
        snapshot_batches(OffsetAndEpoch(9, 2), voter_set, values, timestamp_ms=5, last_contained_log_timestamp_ms=4)
    )
    snapshot = read_snapshot(b"".join(batches))
    assert snapshot.voter_set == voter_set
    assert snapshot.last_contained_log_timestamp_ms == 4
    assert list(snapshot.values) == values
    offsets = [header.base_offset for header, _ in iter_batches(b"".join(batches))]
    assert offsets == sorted(offsets)


def test_a_snapshot_that_was_not_finished_or_is_damaged_is_refused() -> None:
    batches = list(snapshot_batches(OffsetAndEpoch(9, 2), VoterSet(), [b"a" * 100] * 10, timestamp_ms=5))
    whole = b"".join(batches)
    for end in range(0, len(whole), 7):
        with pytest.raises(SnapshotError):
            list(read_snapshot(whole[:end]).values)
    for position in range(len(batches[0]), len(batches[0]) + 400, 13):
        broken = bytearray(whole)
        broken[position] ^= 0x40
        if 0 <= position - len(batches[0]) < 8 or 12 <= position - len(batches[0]) < 16:
            continue  # base offset and epoch are not covered by the checksum
        with pytest.raises(SnapshotError):
            list(read_snapshot(bytes(broken)).values)
