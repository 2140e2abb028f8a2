"""`penstock profile`: names for clusters, with the settings that reach them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli import exit_codes
from penstock.cli.asking import confirm
from penstock.cli.commands import Commands
from penstock.cli.connection import parse_settings, read_properties
from penstock.cli.errors import CliError
from penstock.cli.options import Json, examples
from penstock.cli.output import Cell, note, print_json, print_line, print_table
from penstock.cli.profiles import Profile, Profiles, check_name, load_profiles, profiles_path, save_profiles

app = Commands(help="Keep names for clusters, with their addresses and credentials.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the profile.", show_default=False)]


@app.command(
    epilog=examples(
        ("penstock profile create local --bootstrap-server 127.0.0.1:9092", "a cluster without credentials"),
        ("penstock profile create prod -b kafka-1:9093 --command-config client.properties --use", "with them"),
    )
)
def create(
    name: Name,
    bootstrap_server: Annotated[
        str,
        typer.Option(
            "--bootstrap-server", "-b", metavar="HOST:PORT", help="Addresses of the cluster, separated by commas."
        ),
    ],
    command_config: Annotated[
        Path | None,
        typer.Option("--command-config", metavar="FILE", help="Copy client settings from a properties file."),
    ] = None,
    property_: Annotated[
        list[str] | None,
        typer.Option("--property", "-X", metavar="KEY=VALUE", help="A client setting of librdkafka. Repeatable."),
    ] = None,
    use: Annotated[bool, typer.Option("--use", help="Make it the current profile.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace a profile of the same name.")] = False,
    json: Json = False,
) -> None:
    """Create a profile. The first one becomes the current profile."""
    check_name(name)
    profiles = load_profiles()
    if name in profiles.by_name and not replace:
        raise CliError(f"there is already a profile {name}", exit_codes.ALREADY_EXISTS, "replace it with --replace")
    copied = read_properties(command_config) if command_config is not None else {}
    copied.pop("bootstrap.servers", None)
    profile = Profile(
        bootstrap_server=bootstrap_server, properties={**copied, **parse_settings(property_ or [], "--property")}
    )
    profiles.by_name[name] = profile
    if use or profiles.current is None:
        profiles.current = name
    save_profiles(profiles)
    if json:
        print_json(_as_json(profiles, name))
    else:
        print_line(f"created the profile {name}{' and made it current' if profiles.current == name else ''}")


@app.command("list", epilog=examples(("penstock profile list", "all profiles; the current one is marked")))
def list_profiles(json: Json = False) -> None:
    """List the profiles."""
    profiles = load_profiles()
    if json:
        print_json([_as_json(profiles, name) for name in sorted(profiles.by_name)])
        return
    rows: list[list[Cell]] = [
        [name, name == profiles.current, profile.bootstrap_server] for name, profile in sorted(profiles.by_name.items())
    ]
    print_table("", ("profile", "current", "bootstrap server"), rows)
    if not rows:
        note("There are no profiles. Create one: penstock profile create NAME --bootstrap-server HOST:PORT")


@app.command(
    epilog=examples(
        ("penstock profile use prod", "commands talk to this cluster from now on"),
        ("penstock profile use --none", "commands use no profile unless they name one"),
    )
)
def use(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The name of the profile.", show_default=False)
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Use no profile.")] = False,
    json: Json = False,
) -> None:
    """Choose the profile that commands use."""
    if (name is None) != none:
        raise CliError("name a profile, or give --none", exit_codes.USAGE)
    profiles = load_profiles()
    if name is not None:
        profiles.get(name)
    profiles.current = name
    save_profiles(profiles)
    if json:
        print_json({"current": name})
    else:
        print_line("no profile is current now" if name is None else f"the current profile is {name}")


@app.command(
    epilog=examples(
        ("penstock profile show", "the current profile; secrets are hidden"), ("penstock profile show prod", "another")
    )
)
def show(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="The name of the profile.", show_default="the current profile"),
    ] = None,
    json: Json = False,
) -> None:
    """Show the address and the settings of a profile. Passwords and other secrets are hidden."""
    profiles = load_profiles()
    chosen = name or profiles.current
    if chosen is None:
        raise CliError("no profile is current", exit_codes.NOT_FOUND, "name one, or choose one: penstock profile use")
    profile = profiles.get(chosen)
    if json:
        print_json({**_as_json(profiles, chosen), "file": str(profiles_path())})
        return
    print_table(
        chosen, ("setting", "value"), [("bootstrap.servers", profile.bootstrap_server), *profile.masked.items()]
    )
    note(f"kept in {profiles_path()}")


@app.command(epilog=examples(("penstock profile delete prod --yes", "without a question")))
def delete(
    name: Name, yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False, json: Json = False
) -> None:
    """Delete a profile, with the credentials in it."""
    profiles = load_profiles()
    profiles.get(name)
    if not yes:
        confirm(f"Delete the profile {name}?")
    del profiles.by_name[name]
    if profiles.current == name:
        profiles.current = None
    save_profiles(profiles)
    if json:
        print_json({"profile": name, "deleted": True})
    else:
        print_line(f"deleted the profile {name}")


def _as_json(profiles: Profiles, name: str) -> dict[str, object]:
    profile = profiles.by_name[name]
    return {
        "profile": name,
        "current": name == profiles.current,
        "bootstrap_server": profile.bootstrap_server,
        "properties": profile.masked,
    }
