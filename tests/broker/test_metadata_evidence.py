"""What the metadata files prove: a torn unsynced tail is harmless, everything else is damage."""

from __future__ import annotations

from broker.damaging import METADATA, Files, put
from penstock.broker.quorum.metadata_evidence import Evidence, collect
from penstock.broker.quorum.synced_end import text
from penstock.raft import (
    BOOTSTRAP_SNAPSHOT,
    HardState,
    LeaderChange,
    LogBatch,
    VoterSet,
    encode_batch,
    snapshot_batches,
    snapshot_name,
)
from penstock.sim import SimRuntime, World


def segment(base: int, *counts: int, epoch: int = 1) -> bytes:
    """Batches with these numbers of records; the first batch of an epoch is its leader's own."""
    data, offset = b"", base
    for number, count in enumerate(counts):
        if number == 0 and base == 0:
            batch = LogBatch(offset, count, epoch, control=(LeaderChange(1, (1,), (1,)),) * count)
        else:
            batch = LogBatch(offset, count, epoch, values=(b"value",) * count)
        data += encode_batch(batch, 0)
        offset += count
    return data


def found(*segments: tuple[int, bytes], synced: int | None = None, state: HardState | None = None) -> Evidence:
    snapshot = b"".join(snapshot_batches(BOOTSTRAP_SNAPSHOT, VoterSet(), [], timestamp_ms=0))
    files: Files = {f"{METADATA}/": b"", f"{METADATA}/{snapshot_name(BOOTSTRAP_SNAPSHOT)}": snapshot}
    files |= {f"{METADATA}/{base:020d}.log": data for base, data in segments}
    if synced is not None:
        files[f"{METADATA}/synced-end"] = text(synced)
    with World("evidence") as world:
        put(world.host("node").disk, files)

        async def look(runtime: SimRuntime) -> Evidence:
            return collect(runtime.disk, 0, state)

        return world.execute(look, host="node")


def test_an_intact_log_shows_no_damage() -> None:
    evidence = found((0, segment(0, 1, 2)), (3, segment(3, 1)), synced=4, state=HardState(1))
    assert not evidence.is_damaged
    assert evidence.log.end == 4


def test_a_torn_unsynced_tail_is_not_damage() -> None:
    data = segment(0, 1, 2, 1)
    evidence = found((0, data[:-5]), synced=3)
    assert not evidence.is_damaged
    assert (evidence.log.end, len(evidence.log.behind)) == (3, 0)


def test_a_torn_synced_tail_is_damage() -> None:
    (damage,) = found((0, segment(0, 1, 2, 1)[:-5]), synced=4).damage
    assert "the file ends inside a batch, although the log was synced up to 4" in damage


def test_a_log_that_ends_before_its_last_sync_is_damaged() -> None:
    assert found((0, segment(0, 1, 2)), synced=5).damage == ["the log ends at offset 3, but was synced up to 5"]


def test_an_unsynced_gap_between_segments_is_not_damage() -> None:
    evidence = found((0, segment(0, 1)), (3, segment(3, 1)), synced=1)
    assert not evidence.is_damaged
    assert len(evidence.log.behind) == 1
    assert found((0, segment(0, 1)), (3, segment(3, 1)), synced=4).is_damaged


def test_segments_that_overlap_are_damage() -> None:
    assert "begins at offset 2" in found((0, segment(0, 1, 2)), (2, segment(2, 1))).damage[0]


def test_a_log_without_its_first_segment_is_damage() -> None:
    assert found((3, segment(3, 1))).damage == [
        "the log begins at offset 3, but the newest snapshot ends at 0",
    ]


def test_an_epoch_that_the_node_never_entered_is_damage() -> None:
    (damage,) = found((0, segment(0, 1, epoch=9)), state=HardState(2)).damage
    assert "the log has epoch 9" in damage


def test_batches_behind_the_damage_are_found() -> None:
    data = bytearray(segment(0, 1, 2, 1, 1))
    data[len(segment(0, 1)) + 70] ^= 1
    evidence = found((0, bytes(data)), synced=5)
    assert [batch.base_offset for batch in evidence.log.behind] == [3, 4]
    assert evidence.damage[0].endswith("a batch has a wrong checksum, although the log was synced up to 5; "
                                       "2 valid batches follow")  # fmt: skip
