"""The options of `penstock server` and `penstock up`, declared once for two parsers.

The process of a broker must not load typer: it would cost 20 MB and 300 ms. So `parse` reads an ordinary command line
by itself. It returns None for everything else (`--help`, a mistyped option, a value of the wrong form), and then the
parser of all other commands takes over with the same declarations (`app.py`): it explains, or says what is wrong.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

from penstock.wire.valid import PORT_MAX

PORT_DEFAULT = 9092
LISTEN_DEFAULT = f"127.0.0.1:{PORT_DEFAULT}"
DATA_DEFAULT = "data"
BROKERS_MAX = 99
"""So that no two ports of a local cluster meet."""

OPTION = "option"

T = TypeVar("T")


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """What both parsers need to know about an option; its name and default are those of the field."""

    kind: type[str] | type[int] | type[bool] | type[LogFormat]
    help: str
    metavar: str | None = None
    repeatable: bool = False
    minimum: int | None = None
    maximum: int | None = None
    shown_default: str | None = None
    """For an option whose absence means something else than None."""


def _option(**declaration: Any) -> dict[str, Option]:
    """The metadata of a field that is an option."""
    return {OPTION: Option(**declaration)}


_CONFIG = _option(
    kind=str, metavar="FILE", help="Read properties from a file in the syntax of Kafka's server.properties."
)
_SET = _option(kind=str, metavar="KEY=VALUE", repeatable=True, help="Set a property; overrides the file. Repeatable.")
_DATA = _option(kind=str, metavar="DIR", shown_default=DATA_DEFAULT, help="Keep data in this directory.")
_METRICS = _option(kind=str, metavar="HOST:PORT", help="Serve Prometheus metrics at http://HOST:PORT/metrics.")
_JSON = _option(kind=bool, help="Write JSON, for scripts: one object when ready, and one for each event.")
_LISTEN = _option(
    kind=str, metavar="HOST:PORT", shown_default=LISTEN_DEFAULT, help="Listen for clients at this address."
)
_NODE_ID = _option(kind=int, metavar="N", minimum=0, shown_default="1", help="The id of this node in its cluster.")
_LOG_FORMAT = _option(kind=LogFormat, help="Write events to standard error as text or as JSON lines.")
_PORT = _option(
    kind=int,
    metavar="P",
    minimum=0,
    maximum=PORT_MAX,
    shown_default=str(PORT_DEFAULT),
    help="Listen for clients at this port; with --brokers, node i listens at P+i-1.",
)
_BROKERS = _option(kind=int, metavar="N", minimum=1, maximum=BROKERS_MAX, help="Start this many broker processes.")
_MONITOR = _option(
    kind=bool,
    help="Watch the cluster too: a second process writes its figures to the topic penstock.metrics and serves them "
    "to Prometheus at port P+400.",
)
_SECURE = _option(
    kind=bool,
    help="Clients log in over TLS, and nodes authenticate each other. The administrator's settings are written to "
    "DIR/client.properties, for --command-config.",
)
_RESTART = _option(kind=bool, help="With --brokers: restart nodes that die.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """`penstock server`"""

    config: str | None = field(default=None, metadata=_CONFIG)
    set: tuple[str, ...] = field(default=(), metadata=_SET)
    listen: str | None = field(default=None, metadata=_LISTEN)
    data: str | None = field(default=None, metadata=_DATA)
    node_id: int | None = field(default=None, metadata=_NODE_ID)
    metrics: str | None = field(default=None, metadata=_METRICS)
    log_format: LogFormat = field(default=LogFormat.TEXT, metadata=_LOG_FORMAT)
    json: bool = field(default=False, metadata=_JSON)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions:
    """`penstock up`"""

    data: str | None = field(default=None, metadata=_DATA)
    port: int | None = field(default=None, metadata=_PORT)
    brokers: int = field(default=1, metadata=_BROKERS)
    restart: bool = field(default=False, metadata=_RESTART)
    secure: bool = field(default=False, metadata=_SECURE)
    monitor: bool = field(default=False, metadata=_MONITOR)
    config: str | None = field(default=None, metadata=_CONFIG)
    set: tuple[str, ...] = field(default=(), metadata=_SET)
    metrics: str | None = field(default=None, metadata=_METRICS)
    json: bool = field(default=False, metadata=_JSON)


def declared(options: type[Any]) -> dict[str, tuple[str, Option, object]]:
    """The options of a class: by name, such as `--node-id`, the field, the declaration and the default."""
    return {
        f"--{one.name.replace('_', '-')}": (one.name, one.metadata[OPTION], one.default)
        for one in dataclasses.fields(options)
    }


def parse(options: type[T], arguments: Sequence[str]) -> T | None:
    """The options of an ordinary command line; None for one that the full parser must look at."""
    known = declared(options)
    values: dict[str, Any] = {}
    remaining = iter(arguments)
    for word in remaining:
        name, equals, text = word.partition("=")
        if name not in known:
            return None
        field_name, option, _ = known[name]
        if option.kind is bool:
            if equals:
                return None
            values[field_name] = True
            continue
        if not equals:
            text = next(remaining, "-")
            if text.startswith("-"):
                return None  # Another option, or nothing, where the value should be.
        value = _value(option, text)
        if value is None:
            return None
        values[field_name] = (*values.get(field_name, ()), value) if option.repeatable else value
    return options(**values)


def _value(option: Option, text: str) -> str | int | LogFormat | None:
    if option.kind is LogFormat:
        return LogFormat(text) if text in tuple(LogFormat) else None
    if option.kind is not int:
        return text
    if not (text.isascii() and text.isdigit()):
        return None
    number = int(text)
    if (option.minimum is not None and number < option.minimum) or (
        option.maximum is not None and number > option.maximum
    ):
        return None
    return number
