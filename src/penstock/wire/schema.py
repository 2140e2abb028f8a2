"""The schema language of messages.

Every message class carries a `Schema`: its versions, which of them are flexible (KIP-482: compact lengths and tagged
fields), and its fields in wire order. The terms are those of Kafka's schema files: `"3+"`, `"0-4"`, `"[]int32"` becomes
`array=True`, and so on. The Python defaults of the class are the protocol's defaults.

A field that does not exist in a version keeps its default when decoded and is not encoded. One deviation keeps frequent
responses cheap: a *tagged* struct that was not sent is `None`, not a struct of defaults.
"""

from functools import lru_cache
from typing import ClassVar, Final

import msgspec

# The `struct` format and size of each fixed-size type.
FIXED_FORMATS: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
FIXED_SIZES: Final = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "float64": 8,
    "uuid": 16,
}
VERSION_MAX: Final = 32_767


class Message(msgspec.Struct, gc=False):
    """The base of all messages. They form no cycles, so the garbage collector does not track them."""

    schema: ClassVar["Schema"]


class Field(msgspec.Struct, frozen=True):
    """One field: `type` is a primitive's name or a message class."""

    name: str
    type: str | type[Message]
    versions: str = "0+"
    array: bool = False
    nullable: str = ""
    tag: int = -1
    tagged: str = ""


class Schema(msgspec.Struct, frozen=True):
    """The wire format of a class."""

    versions: str
    flexible: str
    fields: tuple[Field, ...]


class Layout(msgspec.Struct, frozen=True):
    """A schema in one version."""

    flexible: bool
    fields: tuple[Field, ...]
    tagged: tuple[Field, ...]


@lru_cache(maxsize=1024)
def version_range(versions: str) -> range:
    """Parses `"3+"`, `"0-4"`, `"2"`, or an empty string."""
    if not versions or versions == "none":
        return range(0)
    if versions.endswith("+"):
        return range(int(versions[:-1]), VERSION_MAX + 1)
    first, _, last = versions.partition("-")
    return range(int(first), int(last or first) + 1)


def layout(cls: type[Message], version: int) -> Layout:
    """The fields that exist in this version: first those in fixed order, then the tagged ones by tag."""
    schema = cls.schema
    flexible = version in version_range(schema.flexible)
    existing = [field for field in schema.fields if version in version_range(field.versions)]
    tagged = [field for field in existing if version in version_range(field.tagged)]
    assert flexible or not tagged, "only flexible versions have tagged fields"
    return Layout(
        flexible,
        tuple(field for field in existing if field not in tagged),
        tuple(sorted(tagged, key=lambda field: field.tag)),
    )


def versions_of(cls: type[Message]) -> range:
    return version_range(cls.schema.versions)


def is_nullable(field: Field, version: int) -> bool:
    return version in version_range(field.nullable)


def wire_size_min(cls: type[Message], version: int) -> int:
    """The smallest size of a struct, which bounds the count of an array before anything is read."""
    shape = layout(cls, version)
    return sum(_field_size_min(field, version, shape.flexible) for field in shape.fields) + shape.flexible


def element_size_min(field: Field, version: int, flexible: bool) -> int:
    """The same for one element of an array field."""
    if not isinstance(field.type, str):
        return wire_size_min(field.type, version)
    return FIXED_SIZES.get(field.type) or _prefix_size(field.type, flexible)


def _field_size_min(field: Field, version: int, flexible: bool) -> int:
    if field.array:
        return 1 if flexible else 4
    if not isinstance(field.type, str):
        return 1 if is_nullable(field, version) else wire_size_min(field.type, version)
    return FIXED_SIZES.get(field.type) or _prefix_size(field.type, flexible)


def _prefix_size(kind: str, flexible: bool) -> int:
    return 1 if flexible else 2 if kind == "string" else 4
