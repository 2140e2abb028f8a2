"""Showing an answer of the planner: figures, reasons, notes and sources, as tables or as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from math import isfinite
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli import exit_codes
from penstock.cli.errors import CliError
from penstock.cli.output import print_json, print_line, print_table
from penstock.planning.catalogue import Answer, Catalogue, PlanError
from penstock.planning.rules import sources
from penstock.planning.storage import amount

ValuesFile = Annotated[
    Path | None,
    typer.Option(
        "--values",
        metavar="FILE.toml",
        help="Your own thresholds and prices; `penstock plan values` lists the names.",
    ),
]

MONEY = frozenset(
    (
        "compute", "storage", "egress", "cross_zone", "load_balancers", "monitoring", "infrastructure", "operations",
        "total", "per_million_messages", "saved_per_month", "cost", "cost_all_hot",
        "reserved_saving", "spot_saving", "off_peak_saving",
    )
)  # fmt: skip
"""Fields that are US dollars."""
LABELS = {
    "class_name": "class (002's table)",
    "class_partitions": "start with (002's table)",
    "class_maximum": "grow to (002's table)",
    "class_increment": "add at a time (002's table)",
    "generous_low": "with room to grow (003), from",
    "generous_high": "with room to grow (003), to",
    "simple": "quick estimate (000)",
    "binding": "decided by",
    "utilisation_degraded": "utilisation after a failure",
    "ingest_mb_s_per_broker": "ingest of one broker, at most",
    "page_cache_s": "page cache reaches back",
    "disk_bytes": "disk to buy",
    "disk_bytes_per_broker": "disk to buy per broker",
    "cold_bytes": "in object storage",
    "cold_share": "reads from disk",
    "rebuild_hours": "time to rebuild a broker",
}
SHARES = ("share", "utilisation", "utilisation_degraded")


@contextmanager
def plan_errors() -> Iterator[None]:
    """A question that cannot be answered is a mistake on the command line."""
    try:
        yield
    except PlanError as error:
        raise CliError(str(error), exit_codes.USAGE) from None


def catalogue_of(path: Path | None) -> Catalogue:
    """The documents' values, with those of the user's file in their place."""
    if path is None:
        return Catalogue()
    with plan_errors():
        return Catalogue().with_overrides(read_text(path), str(path))


def read_text(path: Path) -> str:
    """A file that the command line names."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise CliError(f"cannot read {path}: {error.strerror}", exit_codes.USAGE) from None
    except UnicodeDecodeError as error:
        raise CliError(f"cannot read {path}: it is not UTF-8 text ({error})", exit_codes.USAGE) from None


def show(title: str, answer: Answer, catalogue: Catalogue, *, json: bool) -> None:
    """Writes an answer."""
    if json:
        print_json(as_json(answer, catalogue))
        return
    rows = [(worded(name), text(name, value)) for name, value in figures(answer) if not _told_as_reasons(value)]
    print_table(title, ("figure", "value"), rows)
    explain(answer, catalogue)


def explain(answer: Answer, catalogue: Catalogue) -> None:
    """The reasons, notes and sources below the figures."""
    _section("Why", answer.reasons)
    _section("Notes", answer.notes)
    _section("Your values", [f"{name} = {catalogue.values[name].shown}" for name in sorted(catalogue.replaced)])
    _section("Sources", [f"{rule.name}: {rule.source}" for rule in sources(answer.rules)])


def as_json(answer: Answer, catalogue: Catalogue) -> dict[str, object]:
    """The answer for scripts. Pairs become objects, and what is without bound becomes null."""
    return {
        **{name: plain(value) for name, value in figures(answer)},
        "reasons": list(answer.reasons),
        "notes": list(answer.notes),
        "rules": [
            {"rule": rule.name, "source": rule.source, "formula": rule.formula, "slip": rule.slip or None}
            for rule in sources(answer.rules)
        ],
        "values_replaced": {name: catalogue[name] for name in sorted(catalogue.replaced)},
    }


def figures(answer: Answer) -> list[tuple[str, object]]:
    """The fields of an answer that are not its explanation."""
    common = {field.name for field in fields(Answer)}
    return [(field.name, getattr(answer, field.name)) for field in fields(answer) if field.name not in common]


def plain(value: object) -> object:
    """A value for JSON."""
    if isinstance(value, float) and not isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, tuple) and _pairs(value):
        return {str(name): plain(one) for name, one in value}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(one) for one in value]
    return value


def _told_as_reasons(value: object) -> bool:
    """Constraints and limits: one line of the reasons tells each of them."""
    return isinstance(value, tuple) and _pairs(value)


def _pairs(value: tuple[object, ...]) -> bool:
    return bool(value) and all(isinstance(one, tuple) and len(one) == 2 and isinstance(one[0], str) for one in value)


def worded(name: str) -> str:
    """The name of a field, for a person: units are told by the value."""
    if name in LABELS:
        return LABELS[name]
    for unit in ("_bytes_per_s", "_messages_per_s"):
        if name.endswith(unit):
            return name.removesuffix("_per_s").replace("_", " ").removesuffix(" bytes")
    for unit in ("_bytes", "_mb_s", "_hours", "_s"):
        if name.endswith(unit):
            return name.removesuffix(unit).replace("_", " ")
    return name.replace("_", " ").replace("bytes per", "per")


def text(name: str, value: object) -> str:
    """A figure for a person, with the unit that its name carries."""
    if isinstance(value, tuple):
        parts = [f"{one[0]} {text(name, one[1])}" if _pairs(value) else text(name, one) for one in value]
        return ", ".join(parts) or "-"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if not isfinite(value):
        return "unlimited"
    if name in MONEY:
        return f"${value:,.3f}" if name == "per_million_messages" else f"${value:,.0f}"
    if name.endswith("messages_per_s"):
        return f"{value:,.0f}/s"
    if name.endswith("_bytes_per_s"):
        return f"{amount(value)}/s"
    if "bytes" in name:
        return amount(value)
    if name.endswith("_mb_s") or "_mb_s_" in name or name in ("limits",):
        return f"{value:,.4g} MB/s"
    if name.endswith(SHARES):
        return f"{value:.1%}"
    if name.endswith("_hours"):
        return f"{value:,.3g} h"
    if name.endswith("_s") and not name.endswith("per_s"):
        return f"{value:,.4g} s"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.3g}" if abs(value) < 1e6 else f"{value:,.0f}"


def _section(title: str, lines: Sequence[str]) -> None:
    if lines:
        print_line("")
        print_line(f"{title}:")
        for line in lines:
            print_line(f"  {line}")
