"""How a batch fits a table."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.pipeline.lake.errors import LakeError
from penstock.pipeline.lake.schemas import (
    Column,
    Field,
    Schema,
    Type,
    plan_existing,
    plan_new,
    schema_as_json,
    schema_of_json,
    shown,
)

ID = Field("id", "long")
TEXT = Field("text", "string")
DAY = Field("day", "date")


def struct(*fields: Field) -> Type:
    return {"type": "struct", "fields": [field.as_json() for field in fields]}


def array(element: Type, *, nulls: bool = True) -> Type:
    return {"type": "array", "elementType": element, "containsNull": nulls}


def test_a_new_table_takes_nulls_everywhere() -> None:
    plan = plan_new((Field("id", "long", nullable=False), Field("list", array("long", nulls=False)), DAY), ["DAY"])
    assert plan.schema == (ID, Field("list", array("long")), DAY)
    assert plan.partition_by == ("day",)
    assert plan.required == ()


@pytest.mark.parametrize(
    ("batch", "partition_by", "complaint"),
    [
        ((ID, Field("gap", "interval day to second")), (), "'gap' is interval day to second"),
        ((ID, Field("nothing", "void")), (), "'nothing' is void"),
        ((ID, Field("deep", struct(Field("v", "variant")))), (), "'deep.v' is variant"),
        ((ID, Field("a b", "long")), (), "'a b' is no name"),
        ((ID, Field("deep", struct(Field("x=", "long")))), (), "'x=' is no name"),
        ((ID, Field("ID", "string")), (), "two columns have the name 'ID'"),
        ((ID, TEXT), ("when",), "no column 'when' to partition by"),
        ((ID, Field("at", "timestamp")), ("at",), "'at' is timestamp: no type to partition by"),
        ((ID, DAY), ("day", "day"), "names a column twice"),
        ((DAY,), ("day",), "every column is a partition column"),
    ],
)
def test_what_no_table_can_hold_is_refused_by_name(
    batch: tuple[Field, ...], partition_by: tuple[str, ...], complaint: str
) -> None:
    with pytest.raises(LakeError) as caught:
        plan_new(batch, partition_by)
    assert complaint in caught.value.message
    assert caught.value.fix


def plan(batch: tuple[Field, ...], table: tuple[Field, ...], partition_by: tuple[str, ...] = (), **options: object):  # type: ignore[no-untyped-def]
    given = {"wanted_partitions": (), "evolution": "add", **options}
    return plan_existing(batch, table, partition_by, **given)  # type: ignore[arg-type]


def test_columns_are_written_under_the_tables_names_in_the_tables_order() -> None:
    made = plan((Field("TEXT", "string"), ID), (ID, TEXT))
    assert made.columns == (Column("id", "id"), Column("TEXT", "text"))
    assert made.added == ()
    assert made.written == (ID, TEXT)


def test_a_column_that_the_batch_lacks_is_left_out() -> None:
    made = plan((ID,), (ID, TEXT))
    assert made.columns == (Column("id", "id"),)
    assert made.schema == (ID, TEXT)


def test_a_column_that_the_table_lacks_is_added_at_the_end() -> None:
    made = plan((Field("new", "double", nullable=False), ID), (ID, TEXT))
    assert made.added == (Field("new", "double"),)
    assert made.schema == (ID, TEXT, Field("new", "double"))
    with pytest.raises(LakeError, match="what the table does not have: new"):
        plan((Field("new", "double"), ID), (ID, TEXT), evolution="refuse")


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        ("byte", "short"), ("byte", "long"), ("short", "integer"), ("integer", "long"), ("float", "double"),
        ("decimal(5,2)", "decimal(7,2)"), ("decimal(5,2)", "decimal(7,4)"),
    ],
)  # fmt: skip
def test_narrower_types_are_cast_and_wider_ones_refused(narrow: str, wide: str) -> None:
    assert plan((Field("x", narrow),), (Field("x", wide),)).columns == (Column("x", "x", wide),)
    with pytest.raises(LakeError, match=r"'x' is .* in the batch and .* in the table"):
        plan((Field("x", wide),), (Field("x", narrow),))


@pytest.mark.parametrize(
    ("new", "known"),
    [
        ("string", "long"), ("long", "double"), ("timestamp", "timestamp_ntz"), ("decimal(5,2)", "decimal(6,4)"),
        ("string", array("string")), (array("integer"), array("long")), (array("string"), struct(TEXT)),
        (struct(Field("x", "string")), struct(Field("x", "long"))),
    ],
)  # fmt: skip
def test_other_types_are_refused_and_both_are_told(new: Type, known: Type) -> None:
    with pytest.raises(LakeError) as caught:
        plan((Field("x", new),), (Field("x", known),))
    assert "in the table" in caught.value.message
    assert "cast it to" in caught.value.fix


@pytest.mark.parametrize("wrap", [lambda kind: kind, array, lambda kind: struct(Field("inner", kind))])
def test_structs_in_maps_do_not_change(wrap: Callable[[Type], Type]) -> None:
    """deltalake fails on files that lack a field there, though Spark does not."""

    def column(*names: str) -> Schema:
        values = struct(*(Field(name, "long") for name in names))
        kind: Type = {"type": "map", "keyType": "string", "valueType": array(values), "valueContainsNull": True}
        return (Field("m", wrap(kind)),)

    assert plan(column("y", "x"), column("x", "y")).added == ()
    for new, known in ((("x", "y"), ("x",)), (("x",), ("x", "y"))):
        with pytest.raises(LakeError, match=r"inside of a map fields cannot come or go"):
            plan(column(*new), column(*known))


def test_structs_get_new_fields_deep_inside() -> None:
    known = Field("s", array(struct(Field("x", "long"), Field("y", "long"))))
    new = Field("s", array(struct(Field("x", "long"), Field("z", struct(TEXT)))))
    made = plan((new,), (known,))
    merged = Field("s", array(struct(Field("x", "long"), Field("y", "long"), Field("z", struct(TEXT)))))
    assert made.added == (merged,)
    assert made.schema == (merged,)
    assert plan((new,), (merged,)).added == ()


def test_a_field_that_differs_only_in_case_is_refused() -> None:
    with pytest.raises(LakeError, match=r"s\.X differs from s\.x"):
        plan((Field("s", struct(Field("X", "long"))),), (Field("s", struct(Field("x", "long"))),))


def test_columns_that_must_not_be_null_have_to_be_there_and_are_checked() -> None:
    table = (Field("id", "long", nullable=False), TEXT)
    assert plan((ID, TEXT), table).required == ("id",)
    with pytest.raises(LakeError, match="'id' of the table must not be null"):
        plan((TEXT,), table)
    with pytest.raises(LakeError, match="checked only for whole columns"):
        plan((Field("l", array("long")),), (Field("l", array("long", nulls=False)),))


def test_partitions_have_to_be_the_tables_own() -> None:
    assert plan((ID, DAY), (ID, DAY), ("day",)).partition_by == ("day",)
    assert plan((ID, DAY), (ID, DAY), ("day",), wanted_partitions=["Day"]).partition_by == ("day",)
    with pytest.raises(LakeError, match="partitioned by day, not by id"):
        plan((ID, DAY), (ID, DAY), ("day",), wanted_partitions=["id"])
    with pytest.raises(LakeError, match="partitioned by nothing, not by day"):
        plan((ID, DAY), (ID, DAY), (), wanted_partitions=["day"])
    with pytest.raises(LakeError, match="lacks the partition column 'day'"):
        plan((ID,), (ID, DAY), ("day",))


def test_files_fit_a_table_that_changed_only_where_it_does_not_matter_to_them() -> None:
    written = plan_new((ID, TEXT), ())
    assert plan((ID, TEXT), (TEXT, ID, DAY)).fits_files_of(written)
    assert not plan((Field("id", "long"), TEXT), (ID, TEXT), ("text",)).fits_files_of(written)
    narrow = plan_new((Field("id", "integer"),), ())
    assert not plan((Field("id", "integer"),), (ID,)).fits_files_of(narrow), "the files hold 32 bits"
    strict = plan((ID, TEXT), (Field("id", "long", nullable=False), TEXT))
    assert not strict.fits_files_of(written)


def test_schemas_survive_the_way_to_json_and_back() -> None:
    schema = (Field("id", "long", nullable=False, metadata=(("comment", "x"),)), Field("s", struct(ID, TEXT)))
    assert schema_of_json(schema_as_json(schema)) == schema


def test_types_are_shown_to_people() -> None:
    dates: Type = {"type": "map", "keyType": "string", "valueType": array("date"), "valueContainsNull": True}
    assert shown(struct(ID, Field("m", dates))) == "struct<id: long, m: map<string, array<date>>>"
