"""The one parser of the command line: typer's, with our help, our suggestions and our errors.

`Commands` is a group of commands. Modules declare their commands on one of these, as they would on `typer.Typer`:

- help is rendered by `help_text.py`, so that it fits 80 columns and no option name is cut;
- a command line that makes no sense becomes a `CliError`, with the nearest name that exists (`usage_error`);
- a command that has `--bootstrap-server` gets `--profile` as well (`cluster_choice.py`).
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from penstock.cli import exit_codes
from penstock.cli.cluster_choice import with_profile
from penstock.cli.errors import CliError
from penstock.cli.help_text import Page, Row, Section, render
from penstock.cli.suggestions import did_you_mean

if TYPE_CHECKING:
    from typer._click import Command as AnyCommand
    from typer._click import Context, HelpFormatter

F = TypeVar("F", bound=Callable[..., object])

TERMINAL_DEFAULT = (80, 24)
CHOICES_INLINE_MAX = 24
"""Choices that take more characters are listed in the explanation instead of beside the option."""
OPTIONS_TITLE = "Options"
PANELS = (BROKERS, RECORDS, CLUSTERS, PIPELINES, TOOLS) = (
    "Run brokers",
    "Topics and records",
    "Clusters",
    "Pipelines",
    "Tools",
)
"""The headings under which `penstock --help` lists commands, in order."""

_PLAIN_WORDS = {
    "Value error, ": "",
    "Input should be a valid integer, unable to parse string as an integer": "this is not a whole number",
    "Input should be a valid number, unable to parse string as a number": "this is not a number",
    "Input should": "it must",
}
"""Words of the library that checks values, and the ones that we use."""
_NOT_A_CHOICE = re.compile(r"'(?P<given>[^']*)' is not one of (?P<choices>.*)", re.S)


class Command(TyperCommand):
    """A command whose help fits the terminal."""

    def format_help(self, ctx: Context, formatter: HelpFormatter) -> None:
        formatter.write(_render(self, ctx, ()))


class Group(TyperGroup):
    """A group of commands whose help fits the terminal, and which proposes a name for one that it does not have."""

    def format_help(self, ctx: Context, formatter: HelpFormatter) -> None:
        formatter.write(_render(self, ctx, list(_command_sections(self, ctx))))

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            sys.stderr.write(ctx.get_help() + "\n")
            raise typer.Exit(exit_codes.USAGE)
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, AnyCommand | None, list[str]]:
        name = args[0]
        if not ctx.resilient_parsing and self.get_command(ctx, name) is None and not name.startswith("-"):
            raise CliError(
                f"{ctx.command_path} has no command {name}{did_you_mean(name, self.list_commands(ctx))}",
                exit_codes.USAGE,
                f"`{ctx.command_path} --help` lists its commands",
            )
        return super().resolve_command(ctx, args)


class Commands(typer.Typer):
    """Commands, and groups of them, under one name."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(cls=Group, pretty_exceptions_enable=False, **settings)

    def command(self, name: str | None = None, **settings: Any) -> Callable[[F], F]:
        register = super().command(name, cls=Command, **settings)

        def declare(function: F) -> F:
            register(with_profile(function))
            return function

        return declare


def usage_error(error: typer.TyperException) -> CliError:
    """Rewords typer's errors about an invalid command line, and suggests the most similar name."""
    context: Context | None = getattr(error, "ctx", None)
    where = context.command_path if context is not None else "penstock"
    hint = f"`{where} --help` explains the command"
    unknown = getattr(error, "option_name", None)
    if hasattr(error, "possibilities") and unknown is not None:
        known = [name for one in context.command.params for name in _names(one)] if context is not None else []
        return CliError(f"{where} has no option {unknown}{did_you_mean(unknown, known)}", exit_codes.USAGE, hint)
    text = error.format_message().strip().rstrip(".")
    for theirs, ours in _PLAIN_WORDS.items():
        text = text.replace(theirs, ours)
    if choice := _NOT_A_CHOICE.search(text):
        choices = re.findall(r"'([^']*)'", choice["choices"])
        text += did_you_mean(choice["given"], choices)
    return CliError(text[:1].lower() + text[1:], exit_codes.USAGE, hint)


def all_commands(app: typer.Typer) -> dict[tuple[str, ...], AnyCommand]:
    """Every command and every group of an application, by its words."""
    found: dict[tuple[str, ...], AnyCommand] = {}

    def walk(words: tuple[str, ...], command: AnyCommand) -> None:
        found[words] = command
        if isinstance(command, TyperGroup):
            for name, child in command.commands.items():
                walk((*words, name), child)

    walk((), typer.main.get_command(app))
    return found


def _render(command: TyperCommand | TyperGroup, ctx: Context, commands: Sequence[Section]) -> str:
    parameters = [one for one in command.get_params(ctx) if isinstance(one, TyperArgument | TyperOption)]
    shown = [one for one in parameters if not one.hidden]
    arguments = [one for one in shown if isinstance(one, TyperArgument)]
    panels: dict[str, list[Row]] = {}
    for one in shown:
        if isinstance(one, TyperOption):
            panels.setdefault(one.rich_help_panel or OPTIONS_TITLE, []).append(_option_row(one))
    sections = [Section("Arguments:", [_argument_row(one) for one in arguments])] if arguments else []
    sections += [Section(f"{title}:", rows) for title, rows in panels.items()]
    words = ["[OPTIONS]", *map(_argument_usage, arguments), *(["COMMAND"] if commands else [])]
    page = Page(
        usage=f"Usage: {ctx.command_path} {' '.join(words)}",
        description=command.help or "",
        # Whoever asks for the help of a group looks for a command.
        sections=[*commands, *sections],
        examples=command.epilog or "",
    )
    return render(page, shutil.get_terminal_size(TERMINAL_DEFAULT).columns, styled=sys.stdout.isatty())


def _command_sections(group: TyperGroup, ctx: Context) -> Iterator[Section]:
    panels: dict[str, list[Row]] = {}
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        if command is None or command.hidden:
            continue
        text = " ".join((command.help or "").split("\n\n")[0].split())
        panel = getattr(command, "rich_help_panel", None)
        panels.setdefault(panel if isinstance(panel, str) else "Commands", []).append(Row(name, text))
    for title in sorted(panels, key=lambda title: PANELS.index(title) if title in PANELS else len(PANELS)):
        yield Section(f"{title}:", panels[title])


def _argument_usage(argument: TyperArgument) -> str:
    name = _argument_name(argument)
    return name if argument.required else f"[{name}]"


def _argument_name(argument: TyperArgument) -> str:
    name = argument.metavar or argument.name.upper()
    return f"{name}..." if argument.nargs != 1 else name


def _argument_row(argument: TyperArgument) -> Row:
    return Row(_argument_name(argument), _explained(argument))


def _option_row(option: TyperOption) -> Row:
    """`-p, --partitions N`: short names first, and both forms of a switch that has two."""
    names = sorted(option.opts, key=lambda name: (name.startswith("--"), len(name)))
    label = ", ".join(names)
    if option.secondary_opts:
        label += f" / {', '.join(option.secondary_opts)}"
    if not option.is_flag and not option.count:
        label += f" {_metavar(option)}"
    return Row(label, _explained(option))


def _metavar(option: TyperOption) -> str:
    if option.metavar is not None:
        return option.metavar
    if choices := _choices(option):
        joined = "|".join(choices)
        return joined if len(joined) <= CHOICES_INLINE_MAX else "NAME"
    kind = option.type_descriptor
    if kind.is_path:
        return "PATH"
    return "N" if kind.annotation in (int, float) or kind.is_ranged else "TEXT"


def _choices(parameter: TyperOption | TyperArgument) -> list[str]:
    return [str(one.value) if isinstance(one, Enum) else str(one) for one in parameter.type_descriptor.choices or ()]


def _explained(parameter: TyperOption | TyperArgument) -> str:
    parts = [parameter.help or ""]
    choices = _choices(parameter)
    if isinstance(parameter, TyperOption) and choices and _metavar(parameter) == "NAME" and parameter.metavar is None:
        parts.append(f"One of {', '.join(choices)}.")
    default = parameter.default
    if isinstance(parameter, TyperOption) and parameter.required:
        parts.append("[required]")
    elif isinstance(parameter.show_default, str):
        parts.append(f"[default: {parameter.show_default}]")
    # A switch that is on says in its label how to switch it off.
    elif parameter.show_default and default not in (None, (), [], "", False, True) and not callable(default):
        parts.append(f"[default: {default.value if isinstance(default, Enum) else default}]")
    return " ".join(part for part in parts if part)


def _names(parameter: object) -> list[str]:
    return [*parameter.opts, *parameter.secondary_opts] if isinstance(parameter, TyperOption) else []
