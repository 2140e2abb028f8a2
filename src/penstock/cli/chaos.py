"""`penstock chaos`: break a test cluster under load and account for every record."""

from __future__ import annotations

import secrets
import shlex
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import exit_codes
from penstock.cli.connection import Cluster, parse_settings
from penstock.cli.errors import CliError
from penstock.cli.options import DEFAULT_TIMEOUT_S, CommandConfig, Json, examples
from penstock.cli.output import note, print_json, print_line, print_table

if TYPE_CHECKING:
    from penstock.chaos.faults import Fault
    from penstock.chaos.nodes import Nodes
    from penstock.chaos.runner import Result, Run
    from penstock.chaos.view import LineScreen, LiveScreen

EXAMPLES = examples(
    ("penstock chaos --brokers 3", "a cluster of its own: kill -9, SIGSTOP and rolling restarts for a minute"),
    ("penstock chaos --brokers 3 --netns --seconds 600", "network cuts and full disks as well, for ten minutes"),
    ("penstock chaos --brokers 3 --faults 'kill-*' --rounds 2 --seed 7", "these faults, twice each, in the order of 7"),
    ("penstock chaos -b test-1:9092 --fault 'reboot=ssh test-$CHAOS_LEADER reboot'", "your cluster, your faults"),
    ("penstock chaos -b test-1:9092 --seconds 300", "only the load and the account, while you break things"),
)
SECONDS_DEFAULT = 60.0
DISK_MEGABYTES = 96
PORT_TRIES = 50
NETNS_PORT = 9092
PORTS = range(12_000, 32_000)
"""Below those that the system gives to outgoing connections."""
SOON = {"group.initial.rebalance.delay.ms": "500"}
"""Nobody comes later than the others here."""
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
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", rich_help_panel=OWN, help="A property of every node; repeatable."),
    ] = None,
    mixed_with: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND", rich_help_panel=OWN,
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
            metavar="NAME=COMMAND", rich_help_panel=THEIRS,
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
    from penstock.chaos import faults as catalogue
    from penstock.chaos import isolation
    from penstock.chaos.faults import Needs
    from penstock.chaos.runner import Options, Run

    if show:
        print_table("", ("fault", "what is done"), [[one.name, one.what] for one in catalogue.catalogue()])
        return
    if (brokers is None) == (bootstrap_server is None):
        raise CliError(
            "say what to break: --brokers N for a cluster of its own, or --bootstrap-server for one of yours",
            exit_codes.USAGE,
        )
    if group_protocol not in ("classic", "consumer"):
        raise CliError(f"--group-protocol {group_protocol}: classic or consumer", exit_codes.USAGE)
    if seconds is not None and rounds is not None:
        raise CliError("--seconds or --rounds, not both", exit_codes.USAGE)
    if brokers is None:
        if netns or settings or mixed_with or data:
            raise CliError("--netns, --set, --mixed-with and --data are for a cluster of its own", exit_codes.USAGE)
        chosen: Sequence[Fault] = [
            catalogue.Command(name, command) for name, command in parse_settings(fault or [], "--fault").items()
        ]
        if rounds is not None and not chosen:
            raise CliError("--rounds without a --fault would end at once", exit_codes.USAGE)
    else:
        if fault:
            raise CliError("--fault is for a cluster of yours; see --faults", exit_codes.USAGE)
        chosen = _choose(catalogue.catalogue(), faults, netns=netns, mixed=mixed_with is not None, brokers=brokers)
        if netns and not isolation.inside():
            if reason := isolation.missing():
                raise CliError(f"--netns: {reason}", exit_codes.FAILED, "without --netns there are faults enough")
            sys.stdout.flush()
            isolation.enter(sys.argv[1:])
    name = f"penstock-chaos-{secrets.token_hex(4)}"
    copies = replication_factor if brokers is None else min(replication_factor, brokers)
    options = Options(
        seconds=SECONDS_DEFAULT if seconds is None and rounds is None else seconds, rounds=rounds,
        seed=secrets.randbelow(1_000_000) if seed is None else seed, topic=name, group=name, partitions=partitions,
        replication_factor=copies, min_insync_replicas=min(min_insync_replicas, copies), producers=producers,
        members=members, rate=rate, value_bytes=value_bytes, group_protocol=group_protocol, keep=keep,
    )  # fmt: skip
    if bootstrap_server is not None:
        properties = Cluster(bootstrap_server, command_config, DEFAULT_TIMEOUT_S).properties
        with _screen(json=json) as screen:
            result = _run(Run(options, {**properties, "bootstrap.servers": bootstrap_server}, chosen, screen))
        _tell(result, json=json)
        return
    assert brokers is not None
    directory = data or Path(tempfile.mkdtemp(prefix="penstock-chaos-"))
    own = _Own(brokers, directory, netns, settings or [], mixed_with, any(Needs.DISK in one.needs for one in chosen))
    with _screen(json=json) as screen, _own_cluster(own) as (nodes, bootstrap):
        result = _run(Run(options, {"bootstrap.servers": bootstrap}, chosen, screen, nodes), directory)
    if data is None and result.holds and not keep:
        shutil.rmtree(directory, ignore_errors=True)
    else:
        note(f"data and logs of the nodes are in {directory}")
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


def _choose(known: list[Fault], wanted: str, *, netns: bool, mixed: bool, brokers: int) -> list[Fault]:
    """The faults that match, without those that this run cannot do unless they were named."""
    from penstock.chaos.faults import Needs

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


@dataclass(frozen=True)
class _Own:
    """What a cluster of its own is to be like."""

    brokers: int
    directory: Path
    netns: bool
    settings: list[str]
    mixed_with: str | None
    small_disks: bool


@contextmanager
def _own_cluster(own: _Own) -> Iterator[tuple[Nodes, str]]:
    from penstock.chaos.isolation import IsolationFailed, Network, SmallDisk
    from penstock.chaos.nodes import Node, Nodes
    from penstock.cli import fleet

    numbers = range(1, own.brokers + 1)
    programs = [[sys.executable, "-m", "penstock"], *([shlex.split(own.mixed_with)] if own.mixed_with else [])]
    members: list[Node] = []
    try:
        network: Network | None = None
        if own.netns:
            network = Network(own.brokers)
            network.up()
        host_of = fleet.one_host if network is None else network.host
        port = NETNS_PORT if network is not None else _free_port(own.brokers)
        for number in numbers:
            place = own.directory / f"node-{number}"
            disk = SmallDisk(place, DISK_MEGABYTES) if own.small_disks else None
            place.mkdir(parents=True, exist_ok=True)
            properties = {
                **fleet.properties(number, own.brokers, port, host_of), **SOON, **parse_settings(own.settings, "--set"),
            }  # fmt: skip
            server = ["server", "--data", str(place / "data")]
            server += [part for name, value in properties.items() for part in ("--set", f"{name}={value}")]
            commands = [[*program, *server] for program in programs]
            # The first of them runs the other version, if there is one: in a mixture both lead and both follow.
            version = number % len(programs)
            members.append(Node(number, commands, own.directory / f"node-{number}.log", disk, version))
    except IsolationFailed as error:
        raise CliError(f"--netns: {error}", exit_codes.FAILED) from None
    nodes = Nodes(members, network)
    try:
        nodes.start()
        yield nodes, ",".join(f"{host_of(number)}:{port + number - 1}" for number in numbers)
    finally:
        nodes.close()


def _free_port(brokers: int) -> int:
    """A port from which on all are free, a moment ago, that the nodes will want."""
    from penstock.cli.fleet import CONTROLLERS_ABOVE, HOST

    for _ in range(PORT_TRIES):
        port = secrets.choice(PORTS)
        wanted = [port + above + n for above in (0, CONTROLLERS_ABOVE) for n in range(brokers)]
        if all(_is_free(HOST, one) for one in wanted):
            return port
    raise CliError("no free ports were found for the nodes", exit_codes.FAILED)


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
