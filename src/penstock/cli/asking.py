"""Questions before something is done that cannot be undone, and several results of which some may be failures."""

from __future__ import annotations

import sys
from concurrent.futures import Future

import typer

from penstock.cli import exit_codes
from penstock.cli.connection import Cluster
from penstock.cli.errors import CliError
from penstock.cli.output import print_error


def confirm(question: str) -> None:
    """Goes on only if the answer is yes."""
    if not sys.stdin.isatty():
        raise CliError(
            f"{question} Confirmation is needed, but standard input is not a terminal",
            exit_codes.USAGE,
            "rerun with --yes",
        )
    if not typer.confirm(question, err=True):
        raise CliError("nothing was changed", exit_codes.DECLINED)


def failure_of(cluster: Cluster, future: Future[None], doing: str) -> CliError | None:
    """Report the error of one item among several; if the cluster is unreachable, end the command."""
    try:
        cluster.wait(future, doing)
    except CliError as error:
        if error.code == exit_codes.UNREACHABLE:
            raise
        return error
    return None


def raise_first(failures: list[CliError]) -> None:
    """Ends the command with the code of the first failure; the others are told as well."""
    if not failures:
        return
    for failure in failures[1:]:
        print_error(failure)
    raise failures[0]
