"""`penstock leaders`: moves leadership to the preferred replicas."""

from __future__ import annotations

from enum import StrEnum
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
from penstock.cli.output import Cell, note, plural, print_json, print_table

if TYPE_CHECKING:
    from penstock.wire.messages.elect_leaders import TopicPartitions

app = Commands(help="Elect partition leaders.")


class ElectionType(StrEnum):
    PREFERRED = "preferred"
    UNCLEAN = "unclean"


_TYPE_CODE = {ElectionType.PREFERRED: 0, ElectionType.UNCLEAN: 1}


# With one command only, typer would take its name away.
@app.callback()
def _group() -> None:
    pass


@app.command(
    epilog=examples(
        ("penstock leaders elect --all", "every partition is led by the first of its replicas again"),
        ("penstock leaders elect --topic orders --topic clicks:0,3", "only those"),
        ("penstock leaders elect --type unclean --topic orders:4", "one that may lack records, if no other lives"),
    )
)
def elect(
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="NAME[:0,1]", help="A topic, or some partitions of it; repeatable."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All partitions of the cluster.")] = False,
    kind: Annotated[
        ElectionType,
        typer.Option("--type", help="preferred: the first replica. unclean: any live replica, which may lack records."),
    ] = ElectionType.PREFERRED,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before an unclean election.")] = False,
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Elect the preferred replica of each partition as leader, or any live replica with --type unclean."""
    from penstock.cli.protocol import check, error_of, reach
    from penstock.wire.errors import ErrorCode
    from penstock.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse

    if bool(topic) == everything:
        raise CliError("no partitions are named", exit_codes.USAGE, "give --topic NAME, or --all")
    cluster = Cluster(bootstrap_server, command_config, timeout)
    if kind is ElectionType.UNCLEAN and not yes:
        confirm("An unclean election may lose records that were acknowledged. Go on?")
    wanted = None if everything else _partitions(cluster, topic or [])
    doing = "elect leaders"
    request = ElectLeadersRequest(_TYPE_CODE[kind], wanted, int(timeout * 1000))
    with reach(cluster, doing) as known:
        answer = known.any_broker().call(request, ElectLeadersResponse, timeout_ms=int(timeout * 1000) + 1000)
    check(answer.error_code, None, doing)
    results = [
        (one.topic, part.partition_id, part.error_code, part.error_message)
        for one in answer.replica_election_results
        for part in one.partition_result
        if part.error_code != ErrorCode.ELECTION_NOT_NEEDED or not everything
    ]
    if json:
        print_json(
            [
                {"topic": name, "partition": number, "error": _code_name(code), "message": message}
                for name, number, code, message in results
            ]
        )
    elif results:
        rows: list[list[Cell]] = [
            [name, number, _outcome(code, message)] for name, number, code, message in sorted(results)
        ]
        print_table("", ("topic", "partition", "outcome"), rows)
    else:
        note("Every partition is already led by its preferred replica.")
    failed = [one for one in results if one[2] not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)]
    if failed:
        error = error_of(failed[0][2], failed[0][3], doing)
        raise CliError(f"{plural(len(failed), 'partition')} without the leader that was wanted", error.code, error.hint)


def _code_name(code: int) -> str | None:
    from penstock.wire.errors import ErrorCode

    return ErrorCode(code).name if code else None


def _outcome(code: int, message: str | None) -> str:
    from penstock.wire.errors import ErrorCode

    if code == ErrorCode.NONE:
        return "elected"
    if code == ErrorCode.ELECTION_NOT_NEEDED:
        return "leads already"
    return message or ErrorCode(code).message


def _partitions(cluster: Cluster, given: list[str]) -> list[TopicPartitions]:
    from penstock.cli.reset_plan import Impossible, parse_topic
    from penstock.wire.messages.elect_leaders import TopicPartitions

    topics = cluster.topics()
    found: list[TopicPartitions] = []
    for text in given:
        try:
            name, partitions = parse_topic(text)
        except Impossible as reason:
            raise CliError(str(reason), exit_codes.USAGE) from None
        if name not in topics:
            raise CliError(f"there is no topic {name}", exit_codes.NOT_FOUND, "`penstock topics list` shows them")
        found.append(TopicPartitions(name, sorted(topics[name].partitions if partitions is None else partitions)))
    return found
