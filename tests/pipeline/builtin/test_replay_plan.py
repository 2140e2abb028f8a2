"""How far a replay came: ranges, chunks, and the file that keeps them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.pipeline.builtin.replay_plan import Order, PlanFile, ReplayError, ReplayPlan, header_of, place_in
from penstock.pipeline.builtin.replaying import replay, time_ms

ORDER = Order("orders", "orders.again", 0, 1_000, keep_partitions=False, keep_timestamps=True, trace=True)


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), min_size=1, max_size=8), st.integers(1, 200))
def test_chunks_cover_every_offset_once(ranges: list[tuple[int, int]], records_max: int) -> None:
    starts = {number: start for number, (start, _) in enumerate(ranges)}
    ends = {number: start + size for number, (start, size) in enumerate(ranges)}
    plan = ReplayPlan.new(ORDER, starts, ends)
    covered: list[tuple[int, int]] = []
    while not plan.is_done:
        plan = plan.next_chunk(records_max, {0: 7})
        assert plan.chunk is not None
        chunk = [
            (partition, offset)
            for partition, end in plan.chunk.ends.items()
            for offset in range(plan.positions[partition], end)
        ]
        assert chunk, "a chunk without offsets would go on for ever"
        assert len(chunk) <= records_max + len(ranges)
        covered += chunk
        plan = plan.chunk_done(len(chunk))
    wanted = [(partition, offset) for partition in starts for offset in range(starts[partition], ends[partition])]
    assert sorted(covered) == wanted
    assert plan.written == len(wanted)
    assert plan.left == 0


def test_a_range_that_ends_before_it_begins_is_empty() -> None:
    plan = ReplayPlan.new(ORDER, {0: 10}, {0: 4})
    assert plan.is_done
    assert plan.ends == {0: 10}


def test_the_file_gives_back_what_was_saved(tmp_path: Path) -> None:
    file = PlanFile(tmp_path / "replays" / "orders.json")
    assert file.load(ORDER) is None
    plan = ReplayPlan.new(ORDER, {0: 0, 1: 5}, {0: 100, 1: 50}).next_chunk(10, {0: 3})
    file.save(plan)
    assert file.load(ORDER) == plan
    file.save(plan.chunk_done(10))
    assert file.load(ORDER) == plan.chunk_done(10)
    assert [path.name for path in file.path.parent.iterdir()] == ["orders.json"], "nothing is left behind"


def test_another_replay_does_not_go_on_with_it(tmp_path: Path) -> None:
    file = PlanFile(tmp_path / "plan.json")
    file.save(ReplayPlan.new(ORDER, {0: 0}, {0: 1}))
    with pytest.raises(ReplayError, match=r"another replay \(target 'orders.again' there, 'elsewhere' here\)"):
        file.load(replace(ORDER, target="elsewhere"))


def test_a_file_that_is_no_plan_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("{}")
    with pytest.raises(ReplayError, match="does not hold the progress of a replay"):
        PlanFile(tmp_path / "plan.json").load(ORDER)


def test_a_file_of_a_newer_version_is_left_to_it(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text('{"format": 2, "somethingNew": []}')
    with pytest.raises(ReplayError, match="written by a newer version of Penstock: go on with that one"):
        PlanFile(tmp_path / "plan.json").load(ORDER)


def test_a_header_says_which_record_of_which_replay_it_is() -> None:
    assert place_in(header_of("abc", 3, 44), "abc") == (3, 44)
    assert place_in(header_of("abc", 3, 44), "abd") is None
    assert place_in(b"nonsense", "abc") is None
    assert place_in(b"abc/x/y", "abc") is None


def test_times_are_utc_unless_they_say_otherwise() -> None:
    assert time_ms("2026-01-05T08:00:00Z", -2) == time_ms("2026-01-05T08:00", -2) == 1_767_600_000_000
    assert time_ms("2026-01-05T10:00:00+02:00", -2) == 1_767_600_000_000
    assert time_ms(None, -2) == -2
    with pytest.raises(ReplayError, match="'yesterday' is not a time"):
        time_ms("yesterday", -2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "orders"}, "the same topic"),
        ({"records_per_chunk": 0}, "records_per_chunk is 0"),
        ({"start": "2026-01-05T08:00Z", "end": "2026-01-05T07:00Z"}, "ends before it begins"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_asked(
    tmp_path: Path, options: dict[str, object], message: str
) -> None:
    wanted = {"target": "again", "progress": tmp_path / "plan.json", **options}
    with pytest.raises(ReplayError, match=message):
        replay(None, "127.0.0.1:1", "orders", **wanted)  # type: ignore[arg-type]
