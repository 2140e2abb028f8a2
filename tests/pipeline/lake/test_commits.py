"""Batches become part of a table whole and once, whoever else commits in between."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import deltalake.transaction
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from penstock.pipeline.lake import LakeError, StaleCheckpoint, Step, commits, compact_table, table_history, to_table
from penstock.pipeline.lake.changes import AddFiles, Change, merge_of
from penstock.pipeline.lake.commits import Mark, Outcome, TableCommits, is_committed
from penstock.pipeline.lake.schemas import Field, WritePlan, schema_as_json
from penstock.pipeline.lake.writer import Mode
from pipeline.lake.tables import DAY, SCHEMA, Driver, ids_in, parquet_files, rows_of

EXTRA = (*SCHEMA, Field("extra", "long"))


class Interrupted(TableCommits):
    """Lets something happen between the look at the mark and the commit from the same handle."""

    meanwhile: Callable[[], object]

    def _apply(self, table: DeltaTable, plan: WritePlan, mark: Mark, change: Change) -> None:
        self.meanwhile()
        super()._apply(table, plan, mark, change)

    def _create(self, *arguments: Any) -> bool:
        self.meanwhile()
        return super()._create(*arguments)


def interrupted(path: Path, meanwhile: Callable[[], object], **options: Any) -> Driver:
    driver = Driver(path, commits=Interrupted, **options)
    assert isinstance(driver.commits, Interrupted)
    calls: Iterator[Callable[[], object]] = itertools.chain([meanwhile], itertools.repeat(lambda: None))
    driver.commits.meanwhile = lambda: next(calls)()
    return driver


def test_batches_of_a_query_follow_one_another(tmp_path: Path) -> None:
    driver = Driver(tmp_path, partition_by=("date",))
    for batch_id in range(3):
        assert driver.run(batch_id, [batch_id]) is Outcome.COMMITTED
    assert ids_in(tmp_path) == [0, 1, 2]
    assert DeltaTable(str(tmp_path)).transaction_version("query") == 2
    assert DeltaTable(str(tmp_path)).metadata().partition_columns == ["date"]


def test_a_batch_that_comes_again_is_not_committed_again(tmp_path: Path) -> None:
    assert Driver(tmp_path).run(0, [1]) is Outcome.COMMITTED
    assert Driver(tmp_path).run(0, [1, 2]) is Outcome.ALREADY_THERE
    assert Driver(tmp_path, "another query").run(0, [3]) is Outcome.COMMITTED
    assert ids_in(tmp_path) == [1, 3]


def test_the_mark_survives_checkpoints_and_compaction(tmp_path: Path) -> None:
    driver = Driver(tmp_path)
    for batch_id in range(3):
        driver.run(batch_id, [batch_id])
    compact_table(tmp_path)
    table = DeltaTable(str(tmp_path))
    table.create_checkpoint()
    for file in (tmp_path / "_delta_log").glob("*.json"):
        if int(file.stem) < table.version():
            file.unlink()
    assert Driver(tmp_path).run(2, [9]) is Outcome.ALREADY_THERE
    assert Driver(tmp_path).run(3, [3]) is Outcome.COMMITTED
    assert ids_in(tmp_path) == [0, 1, 2, 3]


def test_a_batch_older_than_the_table_stops_the_query(tmp_path: Path) -> None:
    """Its records need not be those of the batch that had the number before: to pass over it could lose some."""
    driver = Driver(tmp_path)
    driver.run(0, [0])
    driver.run(1, [1])
    with pytest.raises(StaleCheckpoint, match=r"batch 0 of query query comes after its batch 1 is in the table"):
        Driver(tmp_path).run(0, [7])
    assert is_committed(DeltaTable(str(tmp_path)), Mark("query", 1))
    assert not is_committed(None, Mark("query", 0))


def test_a_driver_that_was_thought_dead_meets_the_mark_of_its_successor(tmp_path: Path) -> None:
    Driver(tmp_path).run(0, [0])
    zombie = interrupted(tmp_path, lambda: Driver(tmp_path).run(1, [1]))
    assert zombie.run(1, [1]) is Outcome.ALREADY_THERE
    assert ids_in(tmp_path) == [0, 1]


def test_a_driver_that_wakes_up_batches_later_stops(tmp_path: Path) -> None:
    Driver(tmp_path).run(0, [0])

    def successor() -> None:
        driver = Driver(tmp_path)
        driver.run(1, [1])
        driver.run(2, [2])

    with pytest.raises(StaleCheckpoint):
        interrupted(tmp_path, successor).run(1, [1])
    assert ids_in(tmp_path) == [0, 1, 2]


def test_two_drivers_that_make_the_table_at_once_make_one(tmp_path: Path) -> None:
    same = interrupted(tmp_path / "same", lambda: Driver(tmp_path / "same").run(0, [1]))
    assert same.run(0, [1]) is Outcome.ALREADY_THERE
    assert ids_in(tmp_path / "same") == [1]
    other = interrupted(tmp_path / "other", lambda: Driver(tmp_path / "other", "another").run(0, [1]))
    assert other.run(0, [2]) is Outcome.COMMITTED
    assert ids_in(tmp_path / "other") == [1, 2]


def test_compaction_between_the_look_and_the_commit_does_no_harm(tmp_path: Path) -> None:
    driver = Driver(tmp_path, partition_by=("date",))
    driver.run(0, [0])
    driver.run(1, [1])
    beside = interrupted(tmp_path, lambda: compact_table(tmp_path), partition_by=("date",))
    assert beside.run(2, [2]) is Outcome.COMMITTED
    assert ids_in(tmp_path) == [0, 1, 2]
    assert [commit.operation for commit in table_history(tmp_path)][:2] == ["WRITE", "compaction"]


def test_an_append_of_another_query_does_no_harm(tmp_path: Path) -> None:
    Driver(tmp_path).run(0, [0])
    beside = interrupted(tmp_path, lambda: Driver(tmp_path, "another").run(7, [70]))
    assert beside.run(1, [1]) is Outcome.COMMITTED
    assert ids_in(tmp_path) == [0, 1, 70]


STEPS = ("first looks", "second looks", "first commits", "second commits", "compaction")


@pytest.mark.parametrize("order", [
    order for order in itertools.permutations(STEPS)
    if order.index("first looks") < order.index("first commits")
    and order.index("second looks") < order.index("second commits")
])  # fmt: skip
def test_two_drivers_and_a_compaction_in_every_order_give_the_batch_once(
    tmp_path: Path, order: tuple[str, ...]
) -> None:
    """Each driver writes other rows, as a random column would make them: never both, never a mix."""
    before = Driver(tmp_path)
    before.run(0, [0])
    before.run(1, [1])
    first, second = Driver(tmp_path), Driver(tmp_path)
    rows = {"first": [10, 11], "second": [20, 21, 22]}
    outcomes = []
    for step in order:
        who, _, what = step.partition(" ")
        driver = first if who == "first" else second
        if step == "compaction":
            compact_table(tmp_path)
        elif what == "looks":
            driver.commits.refresh()
        else:
            outcomes.append(driver.commit(2, driver.write(rows[who])))
    assert outcomes == [Outcome.COMMITTED, Outcome.ALREADY_THERE]
    winner = "first" if order.index("first commits") < order.index("second commits") else "second"
    assert ids_in(tmp_path) == sorted([0, 1, *rows[winner]])


def test_files_of_an_attempt_that_did_not_commit_are_not_in_the_table(tmp_path: Path) -> None:
    driver = Driver(tmp_path)
    driver.run(0, [0])
    orphans = driver.write([100, 101])
    Driver(tmp_path).run(1, [1])
    assert {file.path for file in orphans} <= set(parquet_files(tmp_path))
    assert ids_in(tmp_path) == [0, 1]


def test_new_columns_are_added_and_old_rows_have_nulls_there(tmp_path: Path) -> None:
    driver = Driver(tmp_path)
    driver.run(0, [0])
    assert driver.run(1, [1], schema=EXTRA) is Outcome.COMMITTED
    assert driver.run(2, [2]) is Outcome.COMMITTED
    table = DeltaTable(str(tmp_path))
    assert [field.name for field in table.schema().fields] == ["id", "text", "date", "extra"]
    rows = table.to_pandas().sort_values("id")
    assert rows["extra"].isna().tolist() == [True, False, True]


def test_a_crash_between_the_new_column_and_the_batch_leaves_both_right(tmp_path: Path) -> None:
    Driver(tmp_path).run(0, [0])

    def crash() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted(tmp_path, crash).run(1, [1], schema=EXTRA)
    assert ids_in(tmp_path) == [0]
    assert Driver(tmp_path).run(1, [1], schema=EXTRA) is Outcome.COMMITTED
    assert ids_in(tmp_path) == [0, 1]


def test_a_column_that_somebody_else_adds_meanwhile_is_no_hindrance(tmp_path: Path) -> None:
    Driver(tmp_path).run(0, [0])
    beside = interrupted(tmp_path, lambda: Driver(tmp_path, "another").run(0, [5], schema=EXTRA))
    assert beside.run(1, [1]) is Outcome.COMMITTED
    assert ids_in(tmp_path) == [0, 1, 5]


def test_files_that_no_longer_fit_are_not_committed(tmp_path: Path) -> None:
    """Ours hold 32 bits where the other query just declared 64."""
    Driver(tmp_path).run(0, [0])
    narrow, wide = ((*SCHEMA, Field("n", kind)) for kind in ("integer", "long"))
    driver = Driver(tmp_path)
    driver.commits.refresh()
    files = driver.write([1], schema=narrow)
    Driver(tmp_path, "another").run(0, [5], schema=wide)
    with pytest.raises(LakeError, match="got other columns while batch 1 was written"):
        driver.commit(1, files, narrow)
    assert ids_in(tmp_path) == [0, 5]


def test_a_batch_can_replace_all_that_was_there(tmp_path: Path) -> None:
    driver = Driver(tmp_path)
    driver.run(0, [0, 1])
    driver.commits.refresh()
    assert driver.commit(1, driver.write([2]), replace=True) is Outcome.COMMITTED
    assert ids_in(tmp_path) == [2]
    driver.commits.refresh()
    assert driver.commit(2, [], replace=True) is Outcome.COMMITTED
    assert ids_in(tmp_path) == []


def test_replacing_beside_a_compaction_leaves_only_the_new_rows(tmp_path: Path) -> None:
    driver = Driver(tmp_path)
    driver.run(0, [0])
    driver.run(1, [1])
    beside = interrupted(tmp_path, lambda: compact_table(tmp_path))
    beside.commits.refresh()
    assert beside.commit(2, beside.write([9]), replace=True) is Outcome.COMMITTED
    assert ids_in(tmp_path) == [9]


def merge(driver: Driver, batch_id: int, rows: pa.RecordBatch) -> Outcome:
    change = merge_of(pa.Table.from_batches([rows]), ["id"])
    driver.commits.refresh()
    return driver.commits.commit(Mark("query", batch_id), SCHEMA, driver.commits.plan(SCHEMA), change)


def texts(path: Path) -> dict[int, str]:
    rows = pa.table(DeltaTable(str(path)).scan().read_all()).to_pylist()
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row["text"] for row in rows}


def test_changed_rows_take_the_place_of_those_with_the_same_key(tmp_path: Path) -> None:
    driver = Driver(tmp_path)
    assert merge(driver, 0, rows_of([1, 2])) is Outcome.COMMITTED
    changed = rows_of([2, 3]).set_column(1, "text", pa.array(["two", "three"]))
    assert merge(driver, 1, changed) is Outcome.COMMITTED
    assert merge(Driver(tmp_path), 1, rows_of([2, 4])) is Outcome.ALREADY_THERE
    assert texts(tmp_path) == {1: "text 1", 2: "two", 3: "three"}


def test_merging_beside_a_compaction_leaves_each_key_once(tmp_path: Path) -> None:
    merge(Driver(tmp_path), 0, rows_of([1]))
    merge(Driver(tmp_path), 1, rows_of([2]))
    beside = interrupted(tmp_path, lambda: compact_table(tmp_path))
    assert merge(beside, 2, rows_of([2, 3])) is Outcome.COMMITTED
    assert sorted(texts(tmp_path)) == [1, 2, 3]


def test_a_key_that_does_not_tell_rows_apart_is_refused() -> None:
    rows = pa.Table.from_batches([rows_of([1, 2, 1])])
    with pytest.raises(LakeError, match=r"3 changed rows have only 2 keys: \(id\)"):
        merge_of(rows, ["ID"])
    with pytest.raises(LakeError, match="no column 'shop' to be the key"):
        merge_of(rows, ["shop"])


def test_an_empty_batch_makes_the_table_and_no_commit_after_that(tmp_path: Path) -> None:
    driver = Driver(tmp_path)
    assert driver.run(0, []) is Outcome.COMMITTED
    assert driver.run(1, []) is Outcome.COMMITTED
    assert DeltaTable(str(tmp_path)).version() == 0
    assert driver.run(2, [1]) is Outcome.COMMITTED
    assert ids_in(tmp_path) == [1]


def test_a_table_that_never_rests_ends_in_an_error_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "ATTEMPTS_MAX", 5)
    Driver(tmp_path).run(0, [0])
    numbers = itertools.count()
    driver = Driver(tmp_path, commits=Interrupted)
    assert isinstance(driver.commits, Interrupted)
    fields = (Field(f"f{number}", "long") for number in numbers)

    def change_schema() -> None:
        import json

        from deltalake import Field as DeltaField

        DeltaTable(str(tmp_path)).alter.add_columns([DeltaField.from_json(json.dumps(next(fields).as_json()))])

    driver.commits.meanwhile = change_schema
    with pytest.raises(LakeError, match="changed 5 times while batch 1 was committed"):
        driver.run(1, [1])
    assert ids_in(tmp_path) == [0]


@pytest.mark.parametrize("versions", [1, 2, 12])
def test_a_table_that_was_removed_during_the_query_is_made_anew(tmp_path: Path, versions: int) -> None:
    driver = Driver(tmp_path / "t")
    for batch_id in range(versions):
        driver.run(batch_id, [batch_id])
    shutil.rmtree(tmp_path / "t")
    assert driver.run(versions, [100]) is Outcome.COMMITTED
    assert ids_in(tmp_path / "t") == [100]


def test_a_table_that_was_removed_and_made_anew_is_found(tmp_path: Path) -> None:
    driver = Driver(tmp_path / "t")
    for batch_id in range(3):
        driver.run(batch_id, [batch_id])
    shutil.rmtree(tmp_path / "t")
    Driver(tmp_path / "t", "another").run(0, [50])
    assert driver.run(3, [100]) is Outcome.COMMITTED
    assert ids_in(tmp_path / "t") == [50, 100]


class Unanswered(TableCommits):
    """Its first commit takes effect, and seems to have failed: as a write that is sent again and meets itself."""

    lost = False

    def _apply(self, *arguments: Any) -> None:
        super()._apply(*arguments)
        if not self.lost:
            self.lost = True
            raise CommitFailedError("version 1 already exists")


class SomeBatch:
    """All that a writer asks a micro-batch for before it evaluates it."""

    class schema:
        @staticmethod
        def jsonValue() -> dict[str, object]:
            return schema_as_json(SCHEMA)


@pytest.mark.parametrize("mode", ["append", "complete", "update"])
@pytest.mark.parametrize("creates", [False, True])
def test_a_batch_whose_commit_was_not_answered_keeps_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Mode, creates: bool
) -> None:
    driver = Driver(tmp_path)
    if creates:
        make = deltalake.transaction.create_table_with_add_actions

        def unanswered(*arguments: Any, **options: Any) -> None:
            make(*arguments, **options)
            raise OSError("the connection was reset")

        monkeypatch.setattr(deltalake.transaction, "create_table_with_add_actions", unanswered)
    else:
        driver.run(0, [0])
    steps: list[Step] = []
    key = ["id"] if mode == "update" else []
    writer = to_table(tmp_path, mode=mode, key=key, app_id="query", on_step=lambda step, _: steps.append(step))
    writer._commits = Unanswered(writer.location)
    change = (
        merge_of(pa.Table.from_batches([rows_of([1, 2])]), key)
        if mode == "update"
        else AddFiles(driver.write([1, 2]), replace=mode == "complete")
    )
    monkeypatch.setattr(writer, "_evaluate", lambda batch, plan: change)
    writer(SomeBatch(), 1)  # type: ignore[arg-type]
    assert steps == [Step.STARTED, Step.WRITTEN, Step.REPEATED]
    assert ids_in(tmp_path) == ([1, 2] if creates or mode == "complete" else [0, 1, 2])


def test_the_history_tells_whose_batch_a_commit_was(tmp_path: Path) -> None:
    Driver(tmp_path).run(41, [0], DAY)
    (entry,) = DeltaTable(str(tmp_path)).history()
    assert (entry["penstock.queryId"], entry["penstock.batchId"]) == ("query", "41")
