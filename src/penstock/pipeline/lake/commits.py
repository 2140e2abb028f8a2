"""The driver's part: a change becomes part of the table, once.

All that makes a batch exactly once is in `commit`: the query's mark is read from a handle, and the commit takes effect
only as the very next version of what that handle has seen. If anything was committed in between, whatever it was, the
commit fails, and all is looked at anew. deltalake would rather try again by itself, after comparing both commits; but
its comparison lets pass what must not (two compactions of the same files double their rows in 1.6), so it is asked not
to. Looking again costs some milliseconds.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from penstock.pipeline.lake.changes import Change, add_action
from penstock.pipeline.lake.errors import LakeError, StaleCheckpoint
from penstock.pipeline.lake.files import WrittenFile
from penstock.pipeline.lake.handles import find_table, first_line, partitions_of, protocol_of, schema_of
from penstock.pipeline.lake.protocol import check_partitions, check_writable
from penstock.pipeline.lake.schemas import (
    Schema,
    SchemaEvolution,
    WritePlan,
    plan_existing,
    plan_new,
    schema_as_json,
)

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

    from penstock.pipeline.lake.locations import Location

ATTEMPTS_MAX = 100
"""How often a commit is tried when others commit at the same time; each time the table is looked at again."""
BACKOFF_S = 0.01
BACKOFF_S_MAX = 0.2

QUERY_KEY = "penstock.queryId"
BATCH_KEY = "penstock.batchId"
"""The mark once more, where the table's history shows it to people."""


class Outcome(Enum):
    """What became of a commit."""

    COMMITTED = "committed"
    ALREADY_THERE = "already there"
    """By another driver, or by a commit of this very call whose answer was lost: nobody can tell."""


@dataclass(frozen=True)
class Mark:
    """A micro-batch of a query."""

    app_id: str
    batch_id: int


def backoff_s(attempt: int) -> float:
    """How long to wait before the next attempt: longer each time, and never in step with another writer."""
    longest_s: float = min(BACKOFF_S_MAX, BACKOFF_S * 2 ** min(attempt, 10))
    return random.uniform(0.5, 1.0) * longest_s


def is_committed(table: DeltaTable | None, mark: Mark) -> bool:
    """Whether the table has this batch; StaleCheckpoint where it has a later one of the same query."""
    last = None if table is None else table.transaction_version(mark.app_id)
    if last is None or last < mark.batch_id:
        return False
    if last > mark.batch_id:
        raise StaleCheckpoint(
            f"batch {mark.batch_id} of query {mark.app_id} comes after its batch {last} is in the table: "
            "the checkpoint is older than the table, or another driver runs the same query",
            "stop the other driver, or restore the newest checkpoint; a new one has to start where the table ends",
        )
    return True


class TableCommits:
    """The handle of a table that one query writes to."""

    def __init__(
        self,
        location: Location,
        *,
        partition_by: Sequence[str] = (),
        evolution: SchemaEvolution = "add",
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self._location = location
        self._partition_by = tuple(partition_by)
        self._evolution: SchemaEvolution = evolution
        self._properties = dict(properties or {})
        self._table: DeltaTable | None = None

    def refresh(self) -> DeltaTable | None:
        """The handle, brought up to now; None where there is no table yet."""
        if self._table is None:
            self._table = find_table(self._location)
            return self._table
        from deltalake.exceptions import DeltaError

        try:
            self._table.update_incremental()
        except (DeltaError, OSError):
            self._table = find_table(self._location)  # removed and made anew, or its log was cleaned up
        return self._table

    def has(self, mark: Mark) -> bool:
        """Brings the handle up to now, and asks it for the batch."""
        from deltalake.exceptions import DeltaError

        try:
            return is_committed(self.refresh(), mark)
        except (DeltaError, OSError):
            # The log that the handle has read is gone. Looking for new commits does not always notice that.
            self._table = None
            return is_committed(self.refresh(), mark)

    def plan(self, batch: Schema) -> WritePlan:
        """How a batch with these columns goes into the table as the handle knows it."""
        if self._table is None:
            return plan_new(batch, self._partition_by)
        schema = schema_of(self._table)
        check_writable(protocol_of(self._table), self._table.metadata().configuration, schema)
        check_partitions(schema, partitions_of(self._table))
        return plan_existing(
            batch,
            schema,
            partitions_of(self._table),
            wanted_partitions=self._partition_by,
            evolution=self._evolution,
        )

    def commit(
        self,
        mark: Mark,
        batch: Schema,
        written: WritePlan,
        change: Change,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> Outcome:
        """Makes the change part of the table, unless the table has the batch already.

        `written` is the plan that the batch was evaluated with, some time ago.
        """
        from deltalake.exceptions import CommitFailedError

        conflict: Exception | None = None
        for attempt in range(ATTEMPTS_MAX):
            if attempt:
                sleep(backoff_s(attempt))
            if self.has(mark):
                return Outcome.ALREADY_THERE
            table, plan = self._table, self.plan(batch)
            if not plan.fits_files_of(written):
                raise LakeError(
                    f"the table at {self._location.uri} got other columns while batch {mark.batch_id} was written",
                    "start the query again: it writes the batch anew, and nothing of it is in the table",
                )
            try:
                if table is None:
                    made = self._create(plan, mark, change.first_files)
                    if not made or change.first_files is None:
                        continue
                elif plan.added:
                    self._add_columns(table, plan)
                    continue
                elif not change.is_empty:
                    self._apply(table, plan, mark, change)
            except CommitFailedError as error:
                conflict = error
                continue
            return Outcome.COMMITTED
        raise LakeError(
            f"the table at {self._location.uri} changed {ATTEMPTS_MAX} times while batch {mark.batch_id} was committed"
            + (f": {first_line(conflict)}" if conflict else ""),
            "run fewer jobs that rewrite the table at the same time; the batch is written again on the next start",
        ) from conflict

    def _create(self, plan: WritePlan, mark: Mark, files: Sequence[WrittenFile] | None) -> bool:
        """Makes the table with its first files, or without any and unmarked; False where somebody else just did."""
        from deltalake import Schema as DeltaSchema
        from deltalake.exceptions import DeltaError
        from deltalake.transaction import create_table_with_add_actions

        try:
            create_table_with_add_actions(
                self._location.uri,
                DeltaSchema.from_json(json.dumps(schema_as_json(plan.schema))),
                [add_action(file) for file in files or ()],
                mode="error",
                partition_by=list(plan.partition_by),
                configuration=dict(self._properties) or None,
                storage_options=self._location.options,
                commit_properties=None if files is None else _properties(mark),
            )
        except (DeltaError, OSError) as error:
            if find_table(self._location) is not None:
                return False
            raise LakeError(f"cannot make a table at {self._location.uri}: {first_line(error)}") from error
        return True

    def _add_columns(self, table: DeltaTable, plan: WritePlan) -> None:
        """A commit of its own: a column that is there too early is null, and a repeated batch finds it there."""
        from deltalake.schema import Field as DeltaField

        table.alter.add_columns([DeltaField.from_json(json.dumps(field.as_json())) for field in plan.added])

    def _apply(self, table: DeltaTable, plan: WritePlan, mark: Mark, change: Change) -> None:
        change.apply(table, plan, _properties(mark))


def _properties(mark: Mark) -> CommitProperties:
    from deltalake import CommitProperties, Transaction

    return CommitProperties(
        custom_metadata={QUERY_KEY: mark.app_id, BATCH_KEY: str(mark.batch_id)},
        max_commit_retries=0,
        app_transactions=[Transaction(mark.app_id, mark.batch_id, int(time.time() * 1000))],
    )
