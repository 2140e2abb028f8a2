"""Opening tables, and what a handle tells."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from penstock import install_command
from penstock.pipeline.lake.errors import LakeError, TableMissing
from penstock.pipeline.lake.protocol import Protocol
from penstock.pipeline.lake.schemas import Schema, schema_of_json

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from penstock.pipeline.lake.locations import Location

INSTALL = install_command("spark")


def require_deltalake() -> None:
    """A line that says what to install, instead of a traceback."""
    try:
        import deltalake  # noqa: F401
    except ModuleNotFoundError as error:
        raise LakeError(f"tables need the package {error.name}", INSTALL) from None


def open_table(location: Location, version: int | None = None) -> DeltaTable:
    """The table as it is now, or as it was at a version; TableMissing where there is none."""
    table = find_table(location)
    if table is None:
        raise TableMissing(
            f"there is no Delta table at {location.uri}", "check the path; a table is made by its first batch"
        )
    if version is not None and version != table.version():
        _load_version(table, version, location)
    return table


def find_table(location: Location) -> DeltaTable | None:
    """The table as it is now; None where there is none."""
    require_deltalake()
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        if location.is_local and not DeltaTable.is_deltatable(location.uri):
            return None
        return DeltaTable(location.uri, storage_options=location.options)
    except TableNotFoundError:
        return None
    except (DeltaError, OSError, ValueError) as error:
        raise LakeError(f"cannot open the table at {location.uri}: {first_line(error)}") from error


def schema_of(table: DeltaTable) -> Schema:
    """The columns, in order."""
    return schema_of_json(json.loads(table.schema().to_json()))


def partitions_of(table: DeltaTable) -> tuple[str, ...]:
    """The partition columns, in order."""
    return tuple(table.metadata().partition_columns)


def protocol_of(table: DeltaTable) -> Protocol:
    """What the table demands of its readers and writers."""
    told = table.protocol()
    return Protocol(
        told.min_reader_version,
        told.min_writer_version,
        tuple(sorted(told.reader_features or ())),
        tuple(sorted(told.writer_features or ())),
    )


def has_deletion_vectors(table: DeltaTable) -> bool:
    """Whether files hold rows that are deleted."""
    if "deletionVectors" not in protocol_of(table).reader_features:
        return False
    return any(batch.num_rows for batch in table.deletion_vectors())


def first_line(error: BaseException) -> str:
    """What an error of a library says first."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _load_version(table: DeltaTable, version: int, location: Location) -> None:
    from deltalake.exceptions import DeltaError

    newest = table.version()
    if not 0 <= version <= newest:
        raise LakeError(f"the table at {location.uri} has no version {version}", f"there are versions 0 to {newest}")
    try:
        table.load_as_version(version)
    except (DeltaError, OSError) as error:
        raise LakeError(
            f"version {version} of the table at {location.uri} cannot be read any more: {first_line(error)}",
            "its log was cleaned up; `penstock tables history` lists what is left",
        ) from error
