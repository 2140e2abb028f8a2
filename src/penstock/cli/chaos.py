"""`penstock chaos`: break a test cluster under load and account for every record."""

from __future__ import annotations

import secrets
import shlex
import shutil
import sys
import tempfile
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import exit_codes
from penstock.cli.chaos_cluster import OwnCluster, started
from penstock.cli.connection import Cluster, parse_settings
from penstock.cli.errors import CliError
from penstock.cli.options import DEFAULT_TIMEOUT_S, CommandConfig, Json, examples
from penstock.cli.output import note, print_json, print_line, print_table, write_json

if TYPE_CHECKING:
    from penstock.chaos.faults import Fault
    from penstock.chaos.runner import Options, Result, Run
    from penstock.chaos.view import LineScreen, LiveScreen

EXAMPLES = examples(
    ("penstock chaos --brokers 3", "a cluster of its own: kill -9, SIGSTOP and rolling restarts for a minute"),
    ("penstock chaos --brokers 3 --netns --seconds 600", "network cuts and full disks as well, for ten minutes"),
    ("penstock chaos --brokers 4 --netns --overlap 3 --seconds 1800 --rate 5000", "up to three faults at once"),
    ("penstock chaos --brokers 3 --faults 'kill-*' --rounds 2 --seed 7", "these faults, twice each, in the order of 7"),
    ("penstock chaos --brokers 3 --workload bank", "transfers in transactions: money is conserved"),
    ("penstock chaos -b test-1:9092 --fault 'reboot=ssh test-$CHAOS_LEADER reboot'", "your cluster, your faults"),
    ("penstock chaos -b test-1:9092 --seconds 300", "only the load and the account, while you break things"),
)
SECONDS_DEFAULT = 60.0
ACCOUNT = "account.json"
OWN, THEIRS, LOAD = "A cluster of its own", "Your cluster", "Load"


def chaos(
    brokers: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, max=9, rich_help_panel=OWN, help="Start so many brokers, and break them."),
    ] = None,
    netns: Annotated[
        bool,
        typer.Option("--netns", rich_help_panel=OWN, help="In network namespaces: cuts and full disks too (Linux)."),
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", rich_help_panel=OWN, help="Where nodes keep data and logs (default: temporary)."),
    ] = None,
    disk_megabytes: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=32,
            max=100_000,
            rich_help_panel=OWN,
            help="Size of each node's disk, in memory, where there are faults that fill it.",
        ),
    ] = 96,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", rich_help_panel=OWN, help="A property of every node; repeatable."),
    ] = None,
    mixed_with: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND",
            rich_help_panel=OWN,
            help="Another penstock, such as 'old/bin/penstock': every second node starts with it.",
        ),
    ] = None,
    bootstrap_server: Annotated[
        str | None,
        typer.Option("--bootstrap-server", "-b", metavar="HOST:PORT", rich_help_panel=THEIRS, help="A test cluster."),
    ] = None,
    command_config: CommandConfig = None,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=COMMAND",
            rich_help_panel=THEIRS,
            help="A command that breaks it and mends it again; CHAOS_LEADER, CHAOS_FOLLOWER, CHAOS_CONTROLLER and "
            "CHAOS_COORDINATOR are node ids. Repeatable.",
        ),
    ] = None,
    faults: Annotated[
        str, typer.Option(metavar="NAMES", help="Which faults: names or patterns, with commas between.")
    ] = "*",
    seconds: Annotated[
        float | None, typer.Option(metavar="N", min=1, help=f"For how long (default {SECONDS_DEFAULT:.0f}).")
    ] = None,
    rounds: Annotated[int | None, typer.Option(metavar="N", min=1, help="Instead: every fault so many times.")] = None,
    overlap: Annotated[
        int, typer.Option(metavar="N", min=1, max=9, help="Maximum number of faults at the same time.")
    ] = 1,
    seed: Annotated[int | None, typer.Option(metavar="N", help="Chooses order and length of the faults.")] = None,
    rate: Annotated[float, typer.Option(metavar="N", min=1, rich_help_panel=LOAD, help="Records per second.")] = 500.0,
    partitions: Annotated[int, typer.Option(min=1, max=1000, rich_help_panel=LOAD, help="Of the topic.")] = 6,
    replication_factor: Annotated[
        int, typer.Option(min=1, max=9, rich_help_panel=LOAD, help="Copies, if there are as many brokers.")
    ] = 3,
    min_insync_replicas: Annotated[
        int, typer.Option(min=1, max=9, rich_help_panel=LOAD, help="Copies that an acknowledgement waits for at least.")
    ] = 2,
    producers: Annotated[int, typer.Option(min=1, max=50, rich_help_panel=LOAD, help="Idempotent producers.")] = 2,
    members: Annotated[int, typer.Option(min=1, max=50, rich_help_panel=LOAD, help="Consumers in the group.")] = 2,
    group_protocol: Annotated[
        str, typer.Option(metavar="classic|consumer", rich_help_panel=LOAD, help="The group's protocol.")
    ] = "classic",
    producer_command: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND",
            rich_help_panel=LOAD,
            help="Produce with this program instead of librdkafka; docs/how-to/chaos.md says what it must do.",
        ),
    ] = None,
    workload: Annotated[
        str | None,
        typer.Option(
            metavar="bank|copy",
            rich_help_panel=LOAD,
            help="Transactions as well: transfers between accounts, or a topic copied to a second and a third. Their "
            "workers are killed, too.",
        ),
    ] = None,
    value_bytes: Annotated[int, typer.Option(min=0, max=1_000_000, rich_help_panel=LOAD, help="Of a record.")] = 200,
    keep: Annotated[bool, typer.Option("--keep", help="Leave topic, data and logs where they are.")] = False,
    show: Annotated[bool, typer.Option("--list", help="Name the faults for a cluster of its own, and end.")] = False,
    json: Json = False,
) -> None:
    """Break a test cluster under load and account for every acknowledged record. Exit code 10: something is not right.

    Idempotent producers (acks=all), a group and a lone reader use a topic of their own while one fault follows another.
    At the end every record is accounted for: none lost, duplicated or out of order, no reader that skipped one or saw
    one that is gone.
    """
    from penstock.chaos.runner import Options, Run
    from penstock.chaos.workload import KINDS

    if show:
        _list_faults()
        return
    if (brokers is None) == (bootstrap_server is None):
        raise CliError(
            "choose a cluster: --brokers N to start one, or --bootstrap-server for an existing one",
            exit_codes.USAGE,
        )
    if group_protocol not in ("classic", "consumer"):
        raise CliError(f"--group-protocol {group_protocol}: classic or consumer", exit_codes.USAGE)
    if workload not in (None, *KINDS):
        raise CliError(f"--workload {workload}: {' or '.join(KINDS)}", exit_codes.USAGE)
    producing = tuple(shlex.split(producer_command or ""))
    if producing and shutil.which(producing[0]) is None:
        raise CliError(f"--producer-command: there is no program {producing[0]}", exit_codes.USAGE)
    if seconds is not None and rounds is not None:
        raise CliError("--seconds or --rounds, not both", exit_codes.USAGE)
    if brokers is None:
        if netns or settings or mixed_with or data:
            raise CliError("--netns, --set, --mixed-with and --data are for a cluster of its own", exit_codes.USAGE)
        chosen = _commands(fault or [])
        if rounds is not None and not chosen:
            raise CliError("--rounds without a --fault would end at once", exit_codes.USAGE)
    else:
        if fault:
            raise CliError("--fault is for a cluster of yours; see --faults", exit_codes.USAGE)
        chosen = _choose(faults, netns=netns, mixed=mixed_with is not None, brokers=brokers)
        if netns:
            _enter_namespaces()
    name = f"penstock-chaos-{secrets.token_hex(4)}"
    copies = replication_factor if brokers is None else min(replication_factor, brokers)
    options = Options(
        seconds=SECONDS_DEFAULT if seconds is None and rounds is None else seconds, rounds=rounds,
        seed=secrets.randbelow(1_000_000) if seed is None else seed, topic=name, group=name, partitions=partitions,
        replication_factor=copies, min_insync_replicas=min(min_insync_replicas, copies), producers=producers,
        members=members, rate=rate, value_bytes=value_bytes, group_protocol=group_protocol, keep=keep,
        overlap=overlap, producer_command=producing, workload=workload or "",
    )  # fmt: skip
    if brokers is not None:
        own = OwnCluster(brokers, data, netns, settings or [], mixed_with, disk_megabytes)
        _break_own(own, options, chosen, json=json)
    elif bootstrap_server is not None:
        properties = Cluster(bootstrap_server, command_config, DEFAULT_TIMEOUT_S).properties
        with _screen(json=json) as screen:
            result = _run(Run(options, {**properties, "bootstrap.servers": bootstrap_server}, chosen, screen))
        _tell(result, json=json)


def _list_faults() -> None:
    from penstock.chaos.faults import catalogue

    print_table("", ("fault", "what is done"), [[one.name, one.what] for one in catalogue()])


def _enter_namespaces() -> None:
    """Go on in network namespaces; this process gives way to one that is inside."""
    from penstock.chaos import isolation

    if isolation.inside():
        return
    if reason := isolation.missing():
        raise CliError(f"--netns: {reason}", exit_codes.FAILED, "without --netns there are faults enough")
    sys.stdout.flush()
    isolation.enter(["-m", "penstock", *sys.argv[1:]])


def _break_own(own: OwnCluster, options: Options, chosen: list[Fault], *, json: bool) -> None:
    from penstock.chaos.faults import Needs
    from penstock.chaos.reach import need
    from penstock.chaos.runner import Run
    from penstock.config.local_cluster import quorum_size

    directory = own.data or Path(tempfile.mkdtemp(prefix="penstock-chaos-"))
    small_disks = any(Needs.DISK in one.needs for one in chosen)
    with _screen(json=json) as screen, started(own, directory, small_disks=small_disks) as (nodes, bootstrap):
        needed = need(own.brokers, quorum_size(own.brokers), options.replication_factor, options.min_insync_replicas)
        result = _run(Run(options, {"bootstrap.servers": bootstrap}, chosen, screen, nodes, needed), directory)
    if own.data is None and result.is_clean and not options.keep:
        shutil.rmtree(directory, ignore_errors=True)
    else:
        nodes.keep()
        write_json(directory / ACCOUNT, result.as_json())
        note(f"data and logs of the nodes, and the whole account ({ACCOUNT}), are in {directory}")
    _tell(result, json=json)


def _screen(*, json: bool) -> LiveScreen | LineScreen:
    from penstock.chaos.view import LineScreen, LiveScreen

    return LiveScreen() if sys.stderr.isatty() and not json else LineScreen(sys.stderr)


def _run(run: Run, logs: Path | None = None) -> Result:
    from penstock.chaos.runner import ChaosFailed
    from penstock.client import ClientError

    try:
        return run.run()
    except (ChaosFailed, ClientError) as error:
        hint = f"the nodes' logs are in {logs}" if logs else "`penstock doctor` says what is wrong with the cluster"
        raise CliError(str(error), exit_codes.FAILED, hint) from None


def _tell(result: Result, *, json: bool) -> None:
    from penstock.chaos.view import summary

    if json:
        print_json(result.as_json())
    else:
        for line in summary(result):
            print_line(line)
    if not result.holds:
        raise typer.Exit(exit_codes.UNHEALTHY)


def _commands(given: list[str]) -> list[Fault]:
    """The faults that the user brings."""
    from penstock.chaos.faults import Command

    return [Command(name, command) for name, command in parse_settings(given, "--fault").items()]


def _choose(wanted: str, *, netns: bool, mixed: bool, brokers: int) -> list[Fault]:
    """The faults that match, without those that this run cannot do unless they were named."""
    from penstock.chaos.faults import Needs, catalogue

    known = catalogue()
    can = Needs.NODES | (Needs.NETWORK | Needs.DISK if netns else Needs.NOTHING)
    can |= Needs.OTHER_VERSION if mixed else Needs.NOTHING
    chosen: dict[str, Fault] = {}
    for pattern in (one.strip() for one in wanted.split(",")):
        matching = [one for one in known if fnmatchcase(one.name, pattern)]
        if not matching:
            raise CliError(f"--faults: there is no {pattern}", exit_codes.USAGE, "`penstock chaos --list` names them")
        able = [one for one in matching if one.needs in can and not ("follower" in one.name and brokers == 1)]
        if not able:
            option = "--mixed-with COMMAND" if Needs.OTHER_VERSION in matching[0].needs else "--netns"
            what = option if brokers > 1 else f"{option} or more brokers"
            raise CliError(f"--faults: {pattern} needs {what}", exit_codes.USAGE)
        chosen.update({one.name: one for one in able})
    return list(chosen.values())
