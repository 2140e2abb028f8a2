"""Writes `src/penstock/wire/messages/*.py` from kio, whose classes were generated from Kafka's own schemas.

    python tools/generate_messages.py [--check]

kio has a class per version; we want one class per message whose fields say in which versions they exist. So the
versions are laid over each other: the fields of all of them in one order that agrees with each, and for
each field the versions in which it exists, may be null, or is tagged. kio is needed here and in the tests only.

With `--check` nothing is written, and the exit code says whether the files are what this tool would write.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import importlib
import sys
import types
import typing
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import kio.schema.index
from kio.static.constants import EntityType

MESSAGES = Path(__file__).resolve().parent.parent / "src" / "penstock" / "wire" / "messages"
LINE_LENGTH = 120

# kio's names of the APIs that are spoken here, now or in a planned part of the broker.
APIS = [
    "produce",
    "fetch",
    "list_offsets",
    "metadata",
    "offset_commit",
    "offset_fetch",
    "find_coordinator",
    "join_group",
    "heartbeat",
    "leave_group",
    "sync_group",
    "describe_groups",
    "list_groups",
    "sasl_handshake",
    "api_versions",
    "create_topics",
    "delete_topics",
    "delete_records",
    "init_producer_id",
    "offset_for_leader_epoch",
    "add_partitions_to_txn",
    "add_offsets_to_txn",
    "end_txn",
    "write_txn_markers",
    "txn_offset_commit",
    "describe_acls",
    "create_acls",
    "delete_acls",
    "describe_configs",
    "alter_configs",
    "alter_replica_log_dirs",
    "describe_log_dirs",
    "create_delegation_token",
    "renew_delegation_token",
    "expire_delegation_token",
    "describe_delegation_token",
    "sasl_authenticate",
    "create_partitions",
    "delete_groups",
    "elect_leaders",
    "incremental_alter_configs",
    "alter_partition_reassignments",
    "list_partition_reassignments",
    "offset_delete",
    "describe_client_quotas",
    "alter_client_quotas",
    "describe_user_scram_credentials",
    "alter_user_scram_credentials",
    "vote",
    "begin_quorum_epoch",
    "end_quorum_epoch",
    "describe_quorum",
    "alter_partition",
    "update_features",
    "envelope",
    "fetch_snapshot",
    "describe_cluster",
    "describe_producers",
    "broker_registration",
    "broker_heartbeat",
    "unregister_broker",
    "describe_transactions",
    "list_transactions",
    "allocate_producer_ids",
    "consumer_group_heartbeat",
    "consumer_group_describe",
    "controller_registration",
    "get_telemetry_subscriptions",
    "push_telemetry",
    "assign_replicas_to_dirs",
    "list_config_resources",
    "describe_topic_partitions",
    "share_group_heartbeat",
    "share_group_describe",
    "share_fetch",
    "share_acknowledge",
    "add_raft_voter",
    "remove_raft_voter",
    "update_raft_voter",
    "initialize_share_group_state",
    "read_share_group_state",
    "write_share_group_state",
    "delete_share_group_state",
    "read_share_group_state_summary",
    "describe_share_group_offsets",
    "alter_share_group_offsets",
    "delete_share_group_offsets",
]

# What travels inside records and other fields.
DATA = [
    "consumer_protocol_assignment",
    "consumer_protocol_subscription",
    "default_principal_data",
    "end_txn_marker",
    "leader_change_message",
    "snapshot_header_record",
    "snapshot_footer_record",
    "k_raft_version_record",
    "voters_record",
]

PYTHON_TYPES = {
    "bool": "bool",
    "int8": "int",
    "int16": "int",
    "uint16": "int",
    "int32": "int",
    "uint32": "int",
    "int64": "int",
    "float64": "float",
    "string": "str",
    "bytes": "bytes",
    "records": "bytes | memoryview",
    "uuid": "bytes",
}
# kio turns these into richer types; on the wire, and here, they are numbers.
WIRE_TYPES = {
    "error_code": "int16",
    "timedelta_i32": "int32",
    "timedelta_i64": "int64",
    "datetime_i64": "int64",
}
TIME_TYPES = ("timedelta_i32", "timedelta_i64", "datetime_i64")
IMPLICIT_DEFAULTS = {
    "bool": "False",
    "float64": "0.0",
    "string": '""',
    "bytes": 'b""',
    "records": "None",
    "uuid": "ZERO_UUID",
}
NO_TIME_MS = -1


@dataclasses.dataclass
class FieldSeen:
    """A field as kio shows it in one version."""

    name: str
    kind: str | type
    array: bool
    nullable: bool
    tag: int | None
    default: str | None


@dataclasses.dataclass
class MergedField:
    """A field over all versions."""

    name: str
    kind: str
    is_struct: bool
    array: bool
    tag: int | None
    default: str | None = None
    versions: list[int] = dataclasses.field(default_factory=list)
    nullable: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class MergedClass:
    """A class over all versions, with the order that each version gives to its fields."""

    name: str
    top: bool
    versions: list[int] = dataclasses.field(default_factory=list)
    flexible: list[int] = dataclasses.field(default_factory=list)
    orders: list[list[str]] = dataclasses.field(default_factory=list)
    fields: dict[str, MergedField] = dataclasses.field(default_factory=dict)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only say whether the files are up to date")
    arguments = parser.parse_args()
    files = {f"{name}.py": module_text(name) for name in APIS + DATA}
    files["index.py"] = index_text()
    stale = [name for name, text in files.items() if not is_current(MESSAGES / name, text)]
    if arguments.check:
        for name in stale:
            print(f"{name} is not what this tool would write: run it without --check")
        return 1 if stale else 0
    MESSAGES.mkdir(exist_ok=True)
    for name in stale:
        (MESSAGES / name).write_text(files[name])
    print(f"{len(files)} modules, {len(stale)} of them written")
    return 0


def is_current(path: Path, text: str) -> bool:
    return path.exists() and path.read_text() == text


def module_text(name: str) -> str:
    parts = [merged_entity(name, kind) for kind in kinds_of(name)]
    rename_apart(name, parts)
    classes = [merged for part in parts for merged in part]
    body = "\n\n".join(class_text(merged) for merged in classes)
    imports = ["from penstock.wire.schema import Field, Message, Schema"]
    if "ZERO_UUID" in body:
        imports.append("from penstock.wire.uuids import ZERO_UUID")
    stdlib = "from msgspec import field\n\n" if "field(default_factory" in body else ""
    return (
        f'"""{camel(name)}: generated by tools/generate_messages.py from Kafka\'s schemas; do not edit."""\n'
        + ("# ruff: noqa: RUF012\n" if "] = []" in body or "None = []" in body else "")
        + f"\nfrom __future__ import annotations\n\n{stdlib}"
        + "\n".join(imports)
        + f"\n\n\n{body}"
    )


def kinds_of(name: str) -> list[str]:
    return ["request", "response"] if name in APIS else ["data"]


def versions_of(name: str, kind: str) -> dict[int, types.ModuleType]:
    wanted = EntityType[kind]
    return {
        version: importlib.import_module(f"kio.schema.{name}.v{version}.{kind}")
        for version, entities in sorted(kio.schema.index.schema_name_map[name].items())
        if wanted in entities
    }


def merged_entity(name: str, kind: str) -> list[MergedClass]:
    """The classes of a request, response or data entity, nested ones first."""
    classes: dict[str, MergedClass] = {}
    for version, module in versions_of(name, kind).items():
        top = next(c for c in classes_in(module) if vars(c)["__type__"] == EntityType[kind])
        merge_class(top, version, classes, top=True)
    for merged in classes.values():
        order = merged_order(merged.orders)
        merged.fields = {name: merged.fields[name] for name in order}
    return list(in_order_of_use(classes))


def classes_in(module: types.ModuleType) -> Iterator[type]:
    for value in vars(module).values():
        if dataclasses.is_dataclass(value) and isinstance(value, type) and value.__module__ == module.__name__:
            yield value


def merge_class(cls: type, version: int, classes: dict[str, MergedClass], *, top: bool) -> None:
    merged = classes.setdefault(cls.__name__, MergedClass(cls.__name__, top))
    if version in merged.versions:
        return
    merged.versions.append(version)
    if vars(cls)["__flexible__"]:
        merged.flexible.append(version)
    merged.orders.append([])
    for dataclass_field in dataclasses.fields(cls):
        seen = see(dataclass_field)
        merged.orders[-1].append(seen.name)
        is_struct = isinstance(seen.kind, type)
        kind = seen.kind.__name__ if isinstance(seen.kind, type) else seen.kind
        field = merged.fields.setdefault(seen.name, MergedField(seen.name, kind, is_struct, seen.array, seen.tag))
        assert (field.kind, field.array) == (kind, seen.array), f"{cls} {seen.name} changes its type"
        assert field.tag == seen.tag, f"{cls} {seen.name} changes its tag"
        field.default = field.default if seen.default is None else seen.default
        field.versions.append(version)
        if seen.nullable:
            field.nullable.append(version)
        if isinstance(seen.kind, type):
            merge_class(seen.kind, version, classes, top=False)


def see(field: dataclasses.Field[object]) -> FieldSeen:
    inner, nullable = without_none(field.type)
    array = typing.get_origin(inner) is tuple
    if array:
        inner, element_nullable = without_none(typing.get_args(inner)[0])
        assert not element_nullable or inner is uuid.UUID, f"{field} has elements that may be null"
    tag = field.metadata.get("tag")
    if dataclasses.is_dataclass(inner):
        default = None
        if field.default is not dataclasses.MISSING:
            default = "[]" if array else "None"
        return FieldSeen(field.name, cast("str | type", inner), array, nullable, tag, default)
    kio_kind = field.metadata["kafka_type"]
    kind = WIRE_TYPES.get(kio_kind, kio_kind)
    # Ids and times that kio shows as None are numbers with a special value on the wire.
    if kind == "uuid" or kio_kind in TIME_TYPES:
        nullable = array and nullable
    name = field.name + "_ms" if kio_kind in TIME_TYPES else field.name
    default = None
    if field.default is not dataclasses.MISSING:
        default = default_text(field.default, kind, array, kio_kind)
    return FieldSeen(name, kind, array, nullable, tag, default)


def without_none(annotation: object) -> tuple[typing.Any, bool]:
    if typing.get_origin(annotation) not in (types.UnionType, typing.Union):
        return annotation, False
    arguments = [a for a in typing.get_args(annotation) if a is not types.NoneType]
    assert len(arguments) == 1, f"{annotation} is a union of more than None and something"
    return arguments[0], True


def default_text(value: object, kind: str, array: bool, kio_kind: str) -> str:
    if array:
        assert value in ((), None)
        return "[]" if value == () else "None"
    if kio_kind in TIME_TYPES and value is None:
        return str(NO_TIME_MS)
    if isinstance(value, datetime.timedelta):
        return str(value // datetime.timedelta(milliseconds=1))
    if isinstance(value, datetime.datetime):
        return str(round(value.timestamp() * 1000))
    if kind == "uuid":
        assert value is None or value == uuid.UUID(int=0)
        return "ZERO_UUID"
    if kind == "string" and isinstance(value, str):
        return '"' + value + '"'
    if kind == "bytes" and isinstance(value, bytes):
        assert value == b""
        return 'b""'
    if kind in ("int8", "int16", "uint16", "int32", "uint32", "int64") and isinstance(value, int):
        return str(int(value))
    return repr(value)


def merged_order(orders: list[list[str]]) -> list[str]:
    """One order that agrees with each version's: what comes next is what no version wants later."""
    rest = [list(order) for order in orders]
    result: list[str] = []
    while any(rest):
        heads = [order[0] for order in reversed(rest) if order]
        chosen = next(name for name in heads if not any(name in order[1:] for order in rest))
        result.append(chosen)
        rest = [[name for name in order if name != chosen] for order in rest]
    return result


def in_order_of_use(classes: dict[str, MergedClass]) -> Iterator[MergedClass]:
    done: set[str] = set()

    def visit(merged: MergedClass) -> Iterator[MergedClass]:
        if merged.name in done:
            return
        done.add(merged.name)
        for field in merged.fields.values():
            if field.is_struct:
                yield from visit(classes[field.kind])
        yield merged

    for merged in classes.values():
        yield from visit(merged)


def rename_apart(name: str, parts: list[list[MergedClass]]) -> None:
    """Nested classes that request and response both have get the name of theirs in front."""
    if len(parts) < 2:
        return
    names = [[merged.name for merged in part] for part in parts]
    shared = [n for n in names[0] if n in names[1]]
    for part in parts:
        prefix = next(merged.name for merged in part if merged.top)
        for merged in part:
            if merged.name in shared:
                merged.name = prefix + merged.name
            for field in merged.fields.values():
                if field.is_struct and field.kind in shared:
                    field.kind = prefix + field.kind


def class_text(merged: MergedClass) -> str:
    lines = [f"class {merged.name}(Message):"]
    lines += [f"    {field.name}: {annotation(field)} = {default(field)}" for field in merged.fields.values()]
    head = f"    schema = Schema({spelled(merged.versions)}, {spelled(merged.flexible, merged.versions)}, "
    if merged.fields:
        lines += ["", head + "("]
        lines += [f"        {field_text(field, merged.versions)}," for field in merged.fields.values()]
        lines.append("    ))")
    else:
        lines.append(head + "())")
    assert all(len(line) <= LINE_LENGTH for line in lines), lines
    return "\n".join(lines) + "\n"


def annotation(field: MergedField) -> str:
    inner = field.kind if field.is_struct else PYTHON_TYPES[field.kind]
    text = f"list[{inner}]" if field.array else inner
    return f"{text} | None" if field.nullable or default(field) == "None" else text


def default(field: MergedField) -> str:
    if field.is_struct and not field.array and field.tag is not None:
        return "None"
    if field.default is not None:
        return field.default
    if field.array:
        return "[]"
    if field.is_struct:
        return f"field(default_factory={field.kind})"
    return IMPLICIT_DEFAULTS.get(field.kind, "0")


def field_text(field: MergedField, existing: list[int]) -> str:
    kind = field.kind if field.is_struct else f'"{field.kind}"'
    parts = [f'"{field.name}"', kind, spelled(field.versions, existing)]
    if field.array:
        parts.append("array=True")
    if field.nullable:
        parts.append(f"nullable={spelled(field.nullable, existing)}")
    if field.tag is not None:
        parts.append(f"tag={field.tag}")
        parts.append(f"tagged={spelled(field.versions, existing)}")
    return f"Field({', '.join(parts)})"


def spelled(versions: list[int], existing: list[int] | None = None) -> str:
    """Versions in Kafka's notation; open-ended if they reach the newest that exists."""
    if not versions:
        return '"none"'
    assert versions == list(range(versions[0], versions[-1] + 1)), f"{versions} has a gap"
    if existing is not None and versions[-1] == existing[-1]:
        return f'"{versions[0]}+"'
    return f'"{versions[0]}-{versions[-1]}"' if len(versions) > 1 else f'"{versions[0]}"'


def index_text() -> str:
    keys = {name: key for key, name in kio.schema.index.api_key_map.items()}
    rows = []
    for name in sorted(APIS, key=lambda api: keys[api]):
        request, response = (merged_entity(name, kind)[-1] for kind in ("request", "response"))
        assert (request.name, response.name) == (camel(name) + "Request", camel(name) + "Response")
        assert request.versions == response.versions, f"{name}: request and response differ in versions"
        flexible = request.flexible[0] if request.flexible else request.versions[-1] + 1
        first, last = request.versions[0], request.versions[-1]
        rows.append(f'    {keys[name]}: ApiMessages("{name}", "{camel(name)}", {first}, {last}, {flexible}),')
    return (
        '"""Every API whose messages are here: generated by tools/generate_messages.py; do not edit."""\n\n'
        "from typing import Final, NamedTuple\n\n\n"
        "class ApiMessages(NamedTuple):\n"
        '    """The module and name of an API, the versions that it has, and from which on they are flexible."""\n\n'
        "    module: str\n    name: str\n    first_version: int\n    last_version: int\n"
        "    flexible_from: int\n\n\n"
        "MESSAGES: Final[dict[int, ApiMessages]] = {\n" + "\n".join(rows) + "\n}\n"
    )


def camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


if __name__ == "__main__":
    sys.exit(main())
