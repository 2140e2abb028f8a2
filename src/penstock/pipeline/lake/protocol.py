"""Which tables this code may read, and which it may write to. Pure.

Delta's protocol lets a table demand features of its readers and writers. Whoever does not know one must not touch the
table: a reader that passes over deletion vectors shows deleted rows, a writer that passes over a constraint breaks it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.pipeline.lake.errors import LakeError
from penstock.pipeline.lake.schemas import Field

READER_VERSION_MAX = 3
WRITER_VERSION_MAX = 7
FEATURE_VERSION_READER = 3
FEATURE_VERSION_WRITER = 7

MAPPING_KEY = "delta.columnMapping.mode"

_READER_FEATURES = {
    "timestampNtz": "a type Spark has",
    "v2Checkpoint": "a form of the log, which deltalake reads",
    "vacuumProtocolCheck": "about vacuum only",
    "columnMapping": "allowed while the mapping is off",
    "deletionVectors": "allowed while no file has one",
}
_WRITER_FEATURES = {
    "appendOnly": "we only append, and overwriting such a table is refused by deltalake",
    "invariants": "allowed while no column has one",
    "checkConstraints": "allowed while there is none",
    "generatedColumns": "allowed while no column is generated",
    "identityColumns": "allowed while no column is one",
    "changeDataFeed": "appends need no files of changes",
    "columnMapping": "allowed while the mapping is off",
    "deletionVectors": "appended files have none",
    "timestampNtz": "a type Spark has",
    "v2Checkpoint": "a form of the log, which deltalake writes",
    "vacuumProtocolCheck": "about vacuum only",
    "domainMetadata": "appends change no domain",
}
_COLUMN_RULES = {
    "delta.invariants": "an invariant",
    "delta.generationExpression": "a generation expression",
    "delta.identity.start": "an identity",
}
_CONSTRAINT_PREFIX = "delta.constraints."


@dataclass(frozen=True)
class Protocol:
    """What a table demands."""

    reader_version: int
    writer_version: int
    reader_features: tuple[str, ...] = ()
    writer_features: tuple[str, ...] = ()


def check_readable(protocol: Protocol, configuration: Mapping[str, str | None], *, has_deletion_vectors: bool) -> None:
    """LakeError where a reader of files would see something else than the table."""
    if protocol.reader_version > READER_VERSION_MAX:
        raise LakeError(
            f"the table demands reader version {protocol.reader_version}; {READER_VERSION_MAX} is the newest known",
            "upgrade penstock, or read the table with the engine that wrote it",
        )
    if protocol.reader_version >= FEATURE_VERSION_READER:
        for feature in protocol.reader_features:
            if feature not in _READER_FEATURES:
                raise LakeError(
                    f"the table demands the reader feature {feature}, which is not known here",
                    "read it with the engine that wrote it, or drop the feature there",
                )
    _check_mapping(configuration)
    if has_deletion_vectors:
        raise LakeError(
            "the table has deletion vectors: its files hold rows that are deleted",
            "rewrite the files with the engine that deleted (REORG TABLE … APPLY (PURGE)), or export the table with "
            "`penstock tables export`, which honours them",
        )


def check_writable(protocol: Protocol, configuration: Mapping[str, str | None], schema: Sequence[Field]) -> None:
    """LakeError where adding files could break a rule of the table."""
    if protocol.writer_version > WRITER_VERSION_MAX:
        raise LakeError(
            f"the table demands writer version {protocol.writer_version}; {WRITER_VERSION_MAX} is the newest known",
            "upgrade penstock, or write to another path",
        )
    if protocol.writer_version >= FEATURE_VERSION_WRITER:
        for feature in protocol.writer_features:
            if feature not in _WRITER_FEATURES:
                raise LakeError(
                    f"the table demands the writer feature {feature}, which is not known here",
                    "write with the engine that made the table, or to another path",
                )
    _check_mapping(configuration)
    for key in configuration:
        if key.startswith(_CONSTRAINT_PREFIX):
            raise LakeError(
                f"the table has the constraint {key.removeprefix(_CONSTRAINT_PREFIX)!r}, which is not checked here",
                "drop it, or write with an engine that checks it",
            )
    for field in schema:
        for key, _ in field.metadata:
            if key in _COLUMN_RULES:
                raise LakeError(
                    f"column {field.name!r} of the table has {_COLUMN_RULES[key]}, which is not kept here",
                    "write with the engine that made the table, or to another path",
                )


def check_partitions(schema: Sequence[Field], partition_by: Sequence[str]) -> None:
    """LakeError where partition values cannot be had as they were written."""
    for field in schema:
        if field.name in partition_by and field.type == "binary":
            raise LakeError(
                f"the table is partitioned by {field.name!r}, which is binary: deltalake does not give such values "
                "back as they were written",
                "use the engine that wrote it, or have it write a table that is partitioned by another column",
            )


def _check_mapping(configuration: Mapping[str, str | None]) -> None:
    mode = configuration.get(MAPPING_KEY) or "none"
    if mode != "none":
        raise LakeError(
            f"the table maps its columns to other names in the files ({MAPPING_KEY}={mode})",
            "use the engine that wrote it, or export it with `penstock tables export`, which knows the mapping",
        )
