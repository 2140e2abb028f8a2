"""`penstock users`: who can log in with SCRAM.

Passwords are asked for, read from a file, or made up; never taken from the command line, where other users of the
machine could see them. Only a salted hash is sent, and the cluster stores what checks a password.
"""

from __future__ import annotations

import hashlib
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import exit_codes
from penstock.cli.asking import confirm
from penstock.cli.commands import Commands
from penstock.cli.connection import Cluster
from penstock.cli.errors import CliError
from penstock.cli.options import (
    DEFAULT_BOOTSTRAP_SERVER,
    DEFAULT_TIMEOUT_S,
    BootstrapServer,
    CommandConfig,
    Json,
    Timeout,
    examples,
)
from penstock.cli.output import Cell, note, print_json, print_line, print_table
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from penstock.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

if TYPE_CHECKING:
    from penstock.client import Connection

app = Commands(help="Users that log in with SCRAM: create, list and delete them, change passwords.")

MECHANISMS = {"SCRAM-SHA-256": (1, "sha256"), "SCRAM-SHA-512": (2, "sha512")}
NAMES = {number: name for name, (number, _) in MECHANISMS.items()}
ITERATIONS = 8_192
SALT_BYTES = 24
PASSWORD_BYTES = 18
PASSWORD_LETTERS_MIN = 8

User = Annotated[str, typer.Argument(metavar="USER", help="The user's name.")]
Mechanism = Annotated[
    list[str] | None,
    typer.Option(
        "--mechanism", metavar="NAME", help="SCRAM-SHA-256 or SCRAM-SHA-512. Repeatable.", show_default="both"
    ),
]
PasswordFile = Annotated[
    Path | None,
    typer.Option("--password-file", metavar="FILE", help="Read the password from this file; - is standard input."),
]
Generate = Annotated[bool, typer.Option("--generate", help="Make up a password and print it.")]
Iterations = Annotated[int, typer.Option("--iterations", min=4096, max=16384, help="How often a password is hashed.")]


@app.command(
    "create",
    epilog=examples(
        ("penstock users create ann", "asks for a password"),
        ("penstock users create loader --generate", "makes one up"),
        ("penstock users create ann --password-file - < secret.txt", "for a script"),
    ),
)
def create(
    user: User,
    password_file: PasswordFile = None,
    generate: Generate = False,
    mechanism: Mechanism = None,
    iterations: Iterations = ITERATIONS,
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Create a user. It may do nothing until it is given rights (`penstock acls`)."""
    from penstock.cli.protocol import connect

    chosen = mechanisms(mechanism)
    with connect(Cluster(bootstrap_server, command_config, timeout)) as connection:
        if user in found_users(connection):
            raise CliError(
                f"the user {user} exists", exit_codes.ALREADY_EXISTS, f"to change it: penstock users password {user}"
            )
        password = password_of(user, password_file, generate=generate)
        alter(connection, upsertions=[upsertion(user, password, name, iterations) for name in chosen])
    told(user, "created", password if generate else None, json=json)


@app.command("password", epilog=examples(("penstock users password ann", "asks for the new one")))
def password(
    user: User,
    password_file: PasswordFile = None,
    generate: Generate = False,
    iterations: Iterations = ITERATIONS,
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Change a user's password, for all mechanisms that it has. Connections that are open stay open."""
    from penstock.cli.protocol import connect

    with connect(Cluster(bootstrap_server, command_config, timeout)) as connection:
        has = found_users(connection).get(user)
        if has is None:
            raise no_such(user)
        new = password_of(user, password_file, generate=generate)
        alter(connection, upsertions=[upsertion(user, new, NAMES[number], iterations) for number, _ in has])
    told(user, "has a new password", new if generate else None, json=json)


@app.command("list", epilog=examples(("penstock users list --json", "for a script")))
def list_(
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show the users that can log in with SCRAM, and how."""
    from penstock.cli.protocol import connect

    with connect(Cluster(bootstrap_server, command_config, timeout)) as connection:
        users = found_users(connection)
    if json:
        print_json(
            [
                {"user": user, "mechanisms": {NAMES.get(number, str(number)): count for number, count in has}}
                for user, has in sorted(users.items())
            ]
        )
        return
    rows: list[list[Cell]] = [
        [user, ", ".join(f"{NAMES.get(number, number)} ({count} iterations)" for number, count in has)]
        for user, has in sorted(users.items())
    ]
    print_table("", ("user", "mechanisms"), rows)
    if not rows:
        note("no users; penstock users create NAME")


@app.command("delete", epilog=examples(("penstock users delete ann --yes", "without a question")))
def delete(
    user: User,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Delete a user. Its ACLs stay; connections that are open stay open until their login expires."""
    from penstock.cli.protocol import connect

    with connect(Cluster(bootstrap_server, command_config, timeout)) as connection:
        has = found_users(connection).get(user)
        if has is None:
            raise no_such(user)
        if not yes:
            confirm(f"Delete the user {user}?")
        alter(connection, deletions=[ScramCredentialDeletion(name=user, mechanism=number) for number, _ in has])
    told(user, "deleted", None, json=json)


# ---- helpers


def mechanisms(chosen: list[str] | None) -> list[str]:
    names = [name.upper() for name in chosen or MECHANISMS]
    if unknown := [name for name in names if name not in MECHANISMS]:
        raise CliError(f"--mechanism {unknown[0]}: use one of {', '.join(MECHANISMS)}", exit_codes.USAGE)
    return list(dict.fromkeys(names))


def password_of(user: str, path: Path | None, *, generate: bool) -> str:
    if generate:
        return secrets.token_urlsafe(PASSWORD_BYTES)
    if path is not None:
        try:
            text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CliError(f"cannot read {path}: {error}", exit_codes.USAGE) from None
        found = text.rstrip("\r\n")
    elif sys.stdin.isatty():
        found = str(typer.prompt(f"Password for {user}", hide_input=True, confirmation_prompt=True, err=True))
    else:
        raise CliError(
            "a password is needed, but standard input is not a terminal",
            exit_codes.USAGE,
            "use --password-file FILE or --generate",
        )
    if len(found) < PASSWORD_LETTERS_MIN:
        raise CliError(f"a password has at least {PASSWORD_LETTERS_MIN} letters", exit_codes.USAGE)
    return found


def upsertion(user: str, password: str, mechanism: str, iterations: int) -> ScramCredentialUpsertion:
    number, hash_name = MECHANISMS[mechanism]
    salt = secrets.token_bytes(SALT_BYTES)
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)
    return ScramCredentialUpsertion(
        name=user, mechanism=number, iterations=iterations, salt=salt, salted_password=salted
    )


def found_users(connection: Connection) -> dict[str, list[tuple[int, int]]]:
    """(mechanism, iterations) by user."""
    answer = connection.call(DescribeUserScramCredentialsRequest(users=None), DescribeUserScramCredentialsResponse)
    check(answer.error_code, answer.error_message, "list users")
    return {
        result.user: [(info.mechanism, info.iterations) for info in result.credential_infos]
        for result in answer.results
        if result.error_code == ErrorCode.NONE
    }


def alter(
    connection: Connection,
    *,
    upsertions: list[ScramCredentialUpsertion] | None = None,
    deletions: list[ScramCredentialDeletion] | None = None,
) -> None:
    request = AlterUserScramCredentialsRequest(upsertions=upsertions or [], deletions=deletions or [])
    answer = connection.call(request, AlterUserScramCredentialsResponse)
    for result in answer.results:
        check(result.error_code, result.error_message, f"change the user {result.user}")


def check(code: int, message: str | None, doing: str) -> None:
    from penstock.cli.protocol import error_of

    if code != ErrorCode.NONE:
        raise error_of(ErrorCode(code), message, doing)


def told(user: str, what: str, password: str | None, *, json: bool) -> None:
    if json:
        print_json({"user": user, "result": what, **({} if password is None else {"password": password})})
        return
    print_line(f"{user} {what}")
    if password is not None:
        print_line(f"password: {password}")


def no_such(user: str) -> CliError:
    return CliError(f"there is no user {user}", exit_codes.NOT_FOUND, "`penstock users list` shows those there are")
