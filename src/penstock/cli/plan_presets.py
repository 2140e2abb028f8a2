"""`penstock plan preset`, and the option `--preset` of other commands."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated

import typer

from penstock.cli import exit_codes
from penstock.cli.errors import CliError
from penstock.cli.options import Json, examples
from penstock.cli.output import print_json, print_line, print_table
from penstock.cli.plan_answers import plan_errors
from penstock.client.librdkafka import librdkafka_properties
from penstock.planning.presets import JVM_FLAGS, PRESETS, Preset, Setting, preset
from penstock.planning.tradeoffs import TRADE_OFFS

EXAMPLES = examples(
    ("penstock plan preset", "lists them"),
    ("penstock plan preset events", "its settings and their reasons"),
    ("penstock plan preset events --client librdkafka", "under the names of confluent-kafka and librdkafka"),
    ("penstock topics create orders --preset events", "a topic with these settings"),
)

PresetName = Annotated[
    str | None,
    typer.Option("--preset", metavar="NAME", help="Settings for a purpose; `penstock plan preset` lists them."),
]


class Client(StrEnum):
    """A client library whose names settings are printed under."""

    JAVA = "java"
    LIBRDKAFKA = "librdkafka"
    PENSTOCK = "penstock"


def show_preset(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A preset.", show_default=False)] = None,
    client: Annotated[Client | None, typer.Option("--client", help="Print settings for this client alone.")] = None,
    jvm: Annotated[bool, typer.Option("--jvm", help="Add the JVM's flags for brokers of Apache Kafka.")] = False,
    json: Json = False,
) -> None:
    """Settings of a topic and its clients for a purpose, each with its reason."""
    if name is None:
        _list(json=json)
        return
    with plan_errors():
        chosen = preset(name)
    clients = list(Client) if client is None else [client]
    if json:
        print_json(_as_json(chosen, clients, jvm=jvm))
        return
    print_line(f"{chosen.name}: {chosen.purpose} ({chosen.source})")
    rows = [("replication factor", str(chosen.replication_factor), "")]
    _section("Topic", [*rows, *chosen.topic])
    if client is None:
        _section("Producer", chosen.producer)
        _section("Consumer", chosen.consumer)
    for one in clients:
        print_line("")
        for line in _lines(chosen, one):
            print_line(line)
    _section("Trade-offs (003)", _sides(chosen), ("between", "side", "settings of the document"))
    if jvm:
        _section("JVM of Apache Kafka's brokers (000)", [(one.name, one.why) for one in JVM_FLAGS], ("flag", "why"))


def topic_preset(name: str, replication_factor: int | None, own: dict[str, str]) -> tuple[int, dict[str, str]]:
    """Replicas and settings of a topic: those of the preset, with what the user says in their place."""
    with plan_errors():
        chosen = preset(name)
    copies = replication_factor or chosen.replication_factor
    settings = {**chosen.topic_settings, **own}
    if int(settings["min.insync.replicas"]) > copies:
        raise CliError(
            f"the preset {name} sets min.insync.replicas={settings['min.insync.replicas']}, and with "
            f"{copies} {'replica' if copies == 1 else 'replicas'} no write with acks=all would succeed",
            exit_codes.USAGE,
            f"give --config min.insync.replicas={copies} as well",
        )
    return copies, settings


def client_preset(name: str | None, kind: str) -> dict[str, str]:
    """The settings of a preset for a producer or a consumer, in librdkafka's words."""
    if name is None:
        return {}
    with plan_errors():
        return named(preset(name), kind, Client.LIBRDKAFKA)


def named(chosen: Preset, kind: str, client: Client) -> dict[str, str]:
    """Settings under the names of a client library."""
    settings = {one.name: one.value for one in (chosen.producer if kind == "producer" else chosen.consumer)}
    if client is Client.LIBRDKAFKA:
        return librdkafka_properties(settings)
    return settings


def _lines(chosen: Preset, client: Client) -> list[str]:
    """The settings as they are written in a file or a program."""
    if client is Client.PENSTOCK:
        lines = ["# penstock.client"]
        for kind in ("producer", "consumer"):
            words = ", ".join(
                f"{name.replace('.', '_')}={_literal(value)}" for name, value in named(chosen, kind, client).items()
            )
            start = "bootstrap_servers" if kind == "producer" else 'bootstrap_servers, "TOPIC", "GROUP"'
            lines.append(f"{kind.capitalize()}({start}, {words})")
        return lines
    lines = []
    for kind in ("producer", "consumer"):
        lines.append(f"# {kind}, {'librdkafka and confluent-kafka' if client is Client.LIBRDKAFKA else 'Java'}")
        lines += [f"{name}={value}" for name, value in named(chosen, kind, client).items()]
    return lines


def _literal(value: str) -> str:
    if value in ("true", "false"):
        return value.capitalize()
    return value if value.isdecimal() else f'"{value}"'


def _sides(chosen: Preset) -> list[tuple[str, str, str]]:
    told = {(one.between, one.priority): one.settings for one in TRADE_OFFS}
    return [(between, side, told[between, side]) for between, side in chosen.sides]


def _section(title: str, rows: Iterable[tuple[str, ...]], head: tuple[str, ...] = ("setting", "value", "why")) -> None:
    print_line("")
    print_line(f"{title}:")
    print_table("", head, rows)


def _list(*, json: bool) -> None:
    if json:
        print_json([{"name": one.name, "purpose": one.purpose, "source": one.source} for one in PRESETS])
        return
    print_table("", ("preset", "for"), [(one.name, one.purpose) for one in PRESETS])


def _as_json(chosen: Preset, clients: list[Client], *, jvm: bool) -> dict[str, object]:
    def told(settings: tuple[Setting, ...]) -> list[dict[str, str]]:
        return [{"name": one.name, "value": one.value, "why": one.why} for one in settings]

    found: dict[str, object] = {
        "name": chosen.name,
        "purpose": chosen.purpose,
        "source": chosen.source,
        "replication_factor": chosen.replication_factor,
        "topic": told(chosen.topic),
        "producer": told(chosen.producer),
        "consumer": told(chosen.consumer),
        "clients": {
            str(client): {kind: named(chosen, kind, client) for kind in ("producer", "consumer")} for client in clients
        },
        "trade_offs": [{"between": one, "side": side, "settings": told_} for one, side, told_ in _sides(chosen)],
    }
    if jvm:
        found["jvm_flags"] = [{"flag": one.name, "why": one.why} for one in JVM_FLAGS]
    return found
