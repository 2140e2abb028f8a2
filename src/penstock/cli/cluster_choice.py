"""Which cluster a command talks to.

The first of these that says so: `--bootstrap-server`, the profile (`--profile`, or the current one), the variable
PENSTOCK_BOOTSTRAP_SERVER, the default. The settings of a profile go with its address: with `--bootstrap-server` alone
the current profile is not used at all, so that its password is never sent to another cluster.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Annotated, Any, get_args

import typer

from penstock.cli.options import CLUSTER_PANEL, DEFAULT_BOOTSTRAP_SERVER, BootstrapServer
from penstock.cli.output import note
from penstock.cli.profiles import load_profiles

VARIABLE = "PENSTOCK_BOOTSTRAP_SERVER"
NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})

ProfileName = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME",
        rich_help_panel=CLUSTER_PANEL,
        help="Use the cluster and the settings of this profile; see `penstock profile`.",
        show_default="the current profile",
        autocompletion=lambda: sorted(load_profiles().by_name),
    ),
]


class Address(str):
    """The bootstrap address of the chosen cluster, with the client settings that belong to it."""

    properties: Mapping[str, str]
    is_default: bool
    """Nobody chose it, so the file of --command-config may name another."""

    def __new__(
        cls, address: str, properties: Mapping[str, str] = NO_PROPERTIES, *, is_default: bool = False
    ) -> Address:
        self = super().__new__(cls, address)
        self.properties = properties
        self.is_default = is_default
        return self


def choose(given: str | None, profile_name: str | None) -> Address:
    """The cluster to talk to. Says which one on standard error, unless the command line names it."""
    if given is not None and profile_name is None:
        return Address(given)
    profiles = load_profiles()
    name = profile_name or profiles.current
    if name is not None:
        profile = profiles.get(name)
        address = Address(given or profile.bootstrap_server, profile.properties)
        note(f"cluster: {address} (profile {name})")
        return address
    if from_environment := os.environ.get(VARIABLE):
        note(f"cluster: {from_environment} ({VARIABLE})")
        return Address(from_environment)
    return Address(DEFAULT_BOOTSTRAP_SERVER, is_default=True)


def with_profile(function: Callable[..., object]) -> Callable[..., object]:
    """Gives a command that has `--bootstrap-server` the option `--profile`, and resolves both before it runs."""
    signature = inspect.signature(function, eval_str=True)
    own = signature.parameters.get("bootstrap_server")
    if own is None or own.annotation != BootstrapServer:
        return function

    def command(**values: Any) -> object:
        values["bootstrap_server"] = choose(values["bootstrap_server"], values.pop("profile"))
        return function(**values)

    parameters = []
    for parameter in signature.parameters.values():
        keyword = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        if parameter.name == "bootstrap_server":
            [option] = get_args(BootstrapServer)[1:]
            profile = inspect.Parameter("profile", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=ProfileName)
            parameters += [keyword.replace(default=None, annotation=Annotated[str | None, option]), profile]
        else:
            parameters.append(keyword)
    command.__name__, command.__doc__, command.__module__ = function.__name__, function.__doc__, function.__module__
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    return command
