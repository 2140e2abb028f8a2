"""How a batch fits a table. Pure.

Spark and Delta write schemas in the same JSON, so both sides are that JSON here: a field is an object with `name`,
`type`, `nullable` and `metadata`; a type is a text, or an object for structs, arrays and maps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from penstock.pipeline.lake.errors import LakeError

Type = str | dict[str, object]
SchemaEvolution = Literal["add", "refuse"]

_PRIMITIVES = frozenset(
    ("string", "long", "integer", "short", "byte", "float", "double", "boolean", "binary", "date", "timestamp",
     "timestamp_ntz")
)  # fmt: skip
_PARTITION_TYPES = frozenset(("string", "long", "integer", "short", "byte", "boolean", "date"))
_WHOLE = ("byte", "short", "integer", "long")
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_FORBIDDEN = frozenset(" ,;{}()\n\t=")
"""What Parquet, and so Delta, does not take in names of columns."""


@dataclass(frozen=True)
class Field:
    """A column, or a field of a struct."""

    name: str
    type: Type
    nullable: bool = True
    metadata: tuple[tuple[str, object], ...] = ()

    def as_json(self) -> dict[str, object]:
        return {
            "name": self.name, "type": self.type, "nullable": self.nullable, "metadata": dict(self.metadata),
        }  # fmt: skip


Schema = tuple[Field, ...]


@dataclass(frozen=True)
class Column:
    """A column to be written: where it comes from, and the type it is cast to, if to another one."""

    source: str
    target: str
    cast_to: str | None = None


@dataclass(frozen=True)
class WritePlan:
    """How a batch goes into a table."""

    columns: tuple[Column, ...]
    schema: Schema
    """Of the table, once the columns of `added` are there."""
    added: Schema = ()
    """Columns the table does not have yet, and structs that get new fields."""
    partition_by: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    """Columns that must not be null."""

    def fits_files_of(self, other: WritePlan) -> bool:
        """Whether files that were written for the other plan are right for this one. Order does not matter in files."""
        return (
            sorted(self.columns, key=str) == sorted(other.columns, key=str)
            and self.partition_by == other.partition_by
            and frozenset(self.required) <= frozenset(other.required)
        )

    @property
    def written(self) -> Schema:
        """The columns that the files of the batch have, in the table's own types."""
        targets = [column.target for column in self.columns]
        by_name = {field.name: field for field in self.schema}
        return tuple(by_name[name] for name in targets)


def schema_of_json(schema: Mapping[str, object]) -> Schema:
    """The fields of a schema's JSON."""
    fields = schema["fields"]
    assert isinstance(fields, list)
    return tuple(_field_of_json(field) for field in fields)


def schema_as_json(schema: Schema) -> dict[str, object]:
    """The way back."""
    return {"type": "struct", "fields": [field.as_json() for field in schema]}


def plan_new(batch: Schema, partition_by: Sequence[str]) -> WritePlan:
    """How a batch makes a table: every column as it is, but for nulls, which a table takes from the first day on."""
    _check_names(batch)
    schema = tuple(Field(field.name, _storable(field.type, field.name)) for field in batch)
    names = {field.name.lower(): field for field in schema}
    chosen: list[str] = []
    for wanted in partition_by:
        field = names.get(wanted.lower())
        if field is None:
            raise LakeError(
                f"there is no column {wanted!r} to partition by; the batch has {_list(f.name for f in batch)}",
                "name one of them, or use date_column to partition by the day of a timestamp",
            )
        if field.type not in _PARTITION_TYPES:
            raise LakeError(
                f"column {field.name!r} is {shown(field.type)}: no type to partition by",
                "use a date, a text, a whole number or a boolean; date_column makes a date of a timestamp",
            )
        chosen.append(field.name)
    if len(set(chosen)) < len(chosen):
        raise LakeError(f"partition_by names a column twice: {_list(chosen)}", "name each column once")
    if len(chosen) == len(schema):
        raise LakeError("every column is a partition column", "leave one out: a file needs something to hold")
    return WritePlan(tuple(Column(f.name, f.name) for f in schema), schema, partition_by=tuple(chosen))


def plan_existing(
    batch: Schema, table: Schema, partition_by: Sequence[str], *, wanted_partitions: Sequence[str],
    evolution: SchemaEvolution,
) -> WritePlan:  # fmt: skip
    """How a batch goes into a table that is there; LakeError where it cannot."""
    _check_names(batch)
    if wanted_partitions and [name.lower() for name in wanted_partitions] != [name.lower() for name in partition_by]:
        raise LakeError(
            f"the table is partitioned by {_list(partition_by) or 'nothing'}, not by {_list(wanted_partitions)}",
            "name the table's own partition columns, or write to another path",
        )
    by_name = {field.name.lower(): field for field in table}
    columns: list[Column] = []
    schema = {field.name: field for field in table}
    added: list[Field] = []
    for field in batch:
        known = by_name.pop(field.name.lower(), None)
        if known is None:
            new = Field(field.name, _storable(field.type, field.name))
            schema[new.name] = new
            added.append(new)
            columns.append(Column(field.name, new.name))
            continue
        merged, cast_to = _fit(field, known)
        if merged != known:
            schema[known.name] = merged
            added.append(merged)
        columns.append(Column(field.name, known.name, cast_to))
    if added and evolution == "refuse":
        raise LakeError(
            f"the batch brings what the table does not have: {_list(field.name for field in added)}",
            "drop it from the batch, or let the table grow with schema_evolution='add'",
        )
    for field in by_name.values():  # what the batch lacks is null in its files
        if not field.nullable:
            raise LakeError(f"column {field.name!r} of the table must not be null", "the batch has to have it")
        if field.name in partition_by:
            raise LakeError(f"the batch lacks the partition column {field.name!r}", "the batch has to have it")
    order = {name: index for index, name in enumerate(schema)}
    columns.sort(key=lambda column: order[column.target])
    required = tuple(column.target for column in columns if not schema[column.target].nullable)
    return WritePlan(tuple(columns), tuple(schema.values()), tuple(added), tuple(partition_by), required)


def shown(kind: Type) -> str:
    """A type for a person."""
    if isinstance(kind, str):
        return kind
    if kind["type"] == "array":
        return f"array<{shown(_type(kind['elementType']))}>"
    if kind["type"] == "map":
        return f"map<{shown(_type(kind['keyType']))}, {shown(_type(kind['valueType']))}>"
    return "struct<" + ", ".join(f"{field.name}: {shown(field.type)}" for field in _fields(kind)) + ">"


def _fit(field: Field, known: Field) -> tuple[Field, str | None]:
    """The table's column as it becomes, and the type that the batch's column is cast to."""
    if isinstance(field.type, str) and isinstance(known.type, str):
        if field.type == known.type:
            return known, None
        if _widens(field.type, known.type):
            return known, known.type
    elif isinstance(field.type, dict) and isinstance(known.type, dict):
        merged = _merged(_storable(field.type, field.name), known.type, field.name)
        return (known if merged == known.type else replace(known, type=merged)), None
    raise _mismatch(field.name, field.type, known.type)


def _merged(new: Type, known: Type, path: str) -> Type:
    """The table's nested type, with the fields that the batch adds. Nothing in it is cast: it has to match."""
    if isinstance(new, str) or isinstance(known, str):
        if new != known:
            raise _mismatch(path, new, known)
        return known
    if new["type"] != known["type"]:
        raise _mismatch(path, new, known)
    if known["type"] == "array":
        element = _merged(_type(new["elementType"]), _type(known["elementType"]), f"{path}.element")
        _must_take_nulls(bool(known["containsNull"]), f"{path}.element")
        return {**known, "elementType": element}
    if known["type"] == "map":
        _must_take_nulls(bool(known["valueContainsNull"]), f"{path}.value")
        for side in ("key", "value"):
            ours, theirs = _type(new[f"{side}Type"]), _type(known[f"{side}Type"])
            where = f"{path}.{side}"
            # Neither may lack a field that the other has: deltalake's scans fail on files that lack one in a map.
            if _merged(ours, theirs, where) != theirs or _merged(theirs, ours, where) != ours:
                raise LakeError(
                    f"{where} is {shown(ours)} in the batch and {shown(theirs)} in the table: inside of a map fields "
                    "cannot come or go, since deltalake does not read files with and without them together",
                    "give the batch the table's fields (null where there is nothing), or write to another column",
                )
        return known
    fields = {field.name: field for field in _fields(known)}
    cases = {name.lower(): name for name in fields}
    for field in _fields(known):
        _must_take_nulls(field.nullable, f"{path}.{field.name}")
    for field in _fields(new):
        there = fields.get(field.name)
        if there is None and field.name.lower() in cases:
            raise LakeError(
                f"field {path}.{field.name} differs from {path}.{cases[field.name.lower()]} of the table only in case",
                "rename it in the batch",
            )
        if there is None:
            fields[field.name] = field
        else:
            merged = _merged(field.type, there.type, f"{path}.{field.name}")
            fields[field.name] = there if merged == there.type else replace(there, type=merged)
    return {"type": "struct", "fields": [field.as_json() for field in fields.values()]}


def _must_take_nulls(nullable: bool, path: str) -> None:
    if not nullable:
        raise LakeError(
            f"{path} of the table must not be null, which is checked only for whole columns",
            "write with the engine that made the table, or drop the constraint there",
        )


def _storable(kind: Type, path: str) -> Type:
    """A type as a table declares it: everything may be null. LakeError for types that Delta does not have."""
    if isinstance(kind, str):
        if kind in _PRIMITIVES or _DECIMAL.fullmatch(kind):
            return kind
        raise LakeError(f"column {path!r} is {kind}: no type that Delta has", "cast it, to string for example")
    if kind["type"] == "array":
        return {
            "type": "array",
            "elementType": _storable(_type(kind["elementType"]), f"{path}.element"),
            "containsNull": True,
        }
    if kind["type"] == "map":
        return {
            "type": "map",
            "keyType": _storable(_type(kind["keyType"]), f"{path}.key"),
            "valueType": _storable(_type(kind["valueType"]), f"{path}.value"),
            "valueContainsNull": True,
        }
    if kind["type"] == "struct":
        fields = _fields(kind)
        _check_names(fields)
        return {
            "type": "struct",
            "fields": [Field(f.name, _storable(f.type, f"{path}.{f.name}")).as_json() for f in fields],
        }
    raise LakeError(f"column {path!r} is {kind['type']}: no type that Delta has", "cast it, to string for example")


def _widens(narrow: str, wide: str) -> bool:
    """Whether every value of the one type is a value of the other."""
    if narrow in _WHOLE and wide in _WHOLE:
        return _WHOLE.index(narrow) < _WHOLE.index(wide)
    if narrow == "float":
        return wide == "double"
    few, many = _DECIMAL.fullmatch(narrow), _DECIMAL.fullmatch(wide)
    if few and many:
        digits = (int(few[1]) - int(few[2]), int(many[1]) - int(many[2]))
        return digits[0] <= digits[1] and int(few[2]) <= int(many[2])
    return False


def _check_names(fields: Sequence[Field]) -> None:
    seen: dict[str, str] = {}
    for field in fields:
        if not field.name or _FORBIDDEN & frozenset(field.name):
            raise LakeError(
                f"{field.name!r} is no name for a column of a table",
                "rename it; blanks and , ; { } ( ) = are not allowed in it",
            )
        if field.name.lower() in seen:
            raise LakeError(
                f"two columns have the name {field.name!r} ({seen[field.name.lower()]!r}; case does not count)",
                "rename one of them",
            )
        seen[field.name.lower()] = field.name


def _mismatch(path: str, new: Type, known: Type) -> LakeError:
    return LakeError(
        f"column {path!r} is {shown(new)} in the batch and {shown(known)} in the table",
        f"cast it to {shown(known)}, or write it under another name",
    )


def _field_of_json(field: object) -> Field:
    assert isinstance(field, dict)
    return Field(
        field["name"], field["type"], bool(field.get("nullable", True)), tuple((field.get("metadata") or {}).items())
    )


def _fields(kind: Mapping[str, object]) -> Schema:
    return schema_of_json(kind)


def _type(kind: object) -> Type:
    assert isinstance(kind, str | dict)
    return kind


def _list(names: object) -> str:
    return ", ".join(names)  # type: ignore[arg-type]
