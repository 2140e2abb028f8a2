"""`penstock brokers add` and `drain`: a broker comes into use, or goes out of it, with everything else at work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.balance import ClusterModel, add_brokers, drain_brokers
from penstock.cli import plan_view
from penstock.cli.carrying_out import (
    DEFAULT_PATIENCE,
    DEFAULT_STEP,
    DEFAULT_THROTTLE,
    AllMoves,
    DryRun,
    Patience,
    PlanPath,
    Proposal,
    Step,
    Throttle,
    Yes,
    ask,
    carry_out,
    new_path,
    parse_share,
    parse_span_s,
    parse_throttle,
    port_to,
    report_json,
    write_plan,
)
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
from penstock.cli.output import note, plural, print_json, size_of

if TYPE_CHECKING:
    from penstock.ops.cluster_port import ProtocolPort

ROUNDS_MAX = 5
"""Topics that are created while a broker is drained may be put onto it: then it is drained again."""
POLL_S = 0.5

ADD_EXAMPLES = examples(
    ("penstock brokers add 4 --dry-run", "shows the moves, their size and their duration"),
    ("penstock brokers add 4", "broker 4, started before, takes its share of partitions from the others"),
    ("penstock brokers add 4 --throttle 20MB --step 5%", "more gently"),
)
DRAIN_EXAMPLES = examples(
    ("penstock brokers drain 2 --dry-run", "where everything on broker 2 would go"),
    ("penstock brokers drain 2", "moves everything off it; then it may be stopped"),
    ("penstock brokers drain 2 --unregister", "and when it is stopped, has the cluster forget it"),
)


def add(
    broker: Annotated[int, typer.Argument(metavar="ID", help="The id of the new broker, which must be running.")],
    topic: Annotated[
        list[str] | None, typer.Option("--topic", metavar="NAME", help="Only of this topic; repeatable.")
    ] = None,
    plan: PlanPath = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    all_moves: AllMoves = False,
    throttle: Throttle = DEFAULT_THROTTLE,
    step: Step = DEFAULT_STEP,
    patience: Patience = DEFAULT_PATIENCE,
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Put a new broker into use: move its share of partitions to it, with as few moves as possible.

    The cluster is looked at first; then partitions move a tenth at a time, throttled, and the next ones only when all
    replicas are in sync. Clients notice nothing but leaders that change.
    """
    rate, share = parse_throttle(throttle), parse_share(step, "--step")
    patience_s = parse_span_s(patience, "--patience")
    with port_to(Cluster(bootstrap_server, command_config, timeout), f"bring broker {broker} into use") as port:
        model = port.observe(disks=True)
        made = add_brokers(model, [broker], topic)
        proposal = Proposal(model, made, made_by=f"brokers add {broker}", throttle=rate, step=share)
        if _only_shown(proposal, dry_run=dry_run, all_moves=all_moves, json=json):
            return
        if not made.moves:
            if json:
                print_json({"moved": 0, "brokers": _loads(model)})
            note(f"Broker {broker} already has its share: nothing to move.")
            return
        proposal.require_fit()
        ask(f"{plan_view.summary(model, made, rate, share)}. Go on?", yes=yes)
        path = plan or new_path(f"add-{broker}")
        write_plan(path, proposal.file)
        note(f"The plan is in {path}.")
        report = carry_out(port, proposal.file, path, patience_s)
        after = port.observe(disks=True)
    if json:
        print_json({**report_json(report, path), "brokers": _loads(after)})
        return
    _tell_loads(after)
    note(
        f"Done in {plan_view.span_of(report.seconds)}: broker {broker} is in use. All replicas are in sync, throttles "
        f"are gone; brokers answer in {report.latency_after_ms:.1f} ms, before in {report.latency_before_ms:.1f} ms."
    )


def drain(
    broker: Annotated[int, typer.Argument(metavar="ID", help="The id of the broker to drain; it may be dead.")],
    plan: PlanPath = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    all_moves: AllMoves = False,
    unregister: Annotated[
        bool, typer.Option("--unregister", help="Then wait until it is stopped, and have the cluster forget it.")
    ] = False,
    throttle: Throttle = DEFAULT_THROTTLE,
    step: Step = DEFAULT_STEP,
    patience: Patience = DEFAULT_PATIENCE,
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Move all partitions off a broker, so that it can be stopped.

    Its replicas go to the others: into other racks where they can, and to those that hold least. A broker that is dead
    can be drained as well, as long as other replicas of its partitions live.
    """
    rate, share = parse_throttle(throttle), parse_share(step, "--step")
    patience_s = parse_span_s(patience, "--patience")
    reports: list[dict[str, object]] = []
    with port_to(Cluster(bootstrap_server, command_config, timeout), f"drain broker {broker}") as port:
        for number in range(ROUNDS_MAX):
            model = port.observe(disks=True)
            made = drain_brokers(model, [broker])
            proposal = Proposal(
                model, made, made_by=f"brokers drain {broker}", throttle=rate, step=share, leaving=(broker,)
            )
            if number == 0 and _only_shown(proposal, dry_run=dry_run, all_moves=all_moves, json=json):
                return
            if not made.moves:
                break
            proposal.require_fit()
            if number == 0:
                ask(f"{plan_view.summary(model, made, rate, share)}. Go on?", yes=yes)
            else:
                note(f"{plural(len(made.moves), 'partition')} came onto broker {broker} meanwhile: once more.")
            path = plan if plan is not None and number == 0 else new_path(f"drain-{broker}")
            write_plan(path, proposal.file)
            note(f"The plan is in {path}.")
            reports.append(report_json(carry_out(port, proposal.file, path, patience_s), path))
        after = port.observe(disks=True)
        if after.loads()[broker].replicas:
            raise CliError(
                f"topics are created faster than broker {broker} is drained", hint="stop creating topics, and try again"
            )
        if unregister:
            _unregister(port, broker, patience_s)
    if json:
        print_json({"rounds": reports, "unregistered": unregister, "brokers": _loads(after)})
        return
    _tell_loads(after)
    if unregister:
        note(f"Broker {broker} holds nothing, is stopped, and is forgotten.")
    else:
        note(f"Broker {broker} holds nothing any more: it may be stopped. Until then, new topics may be put onto it.")


def _only_shown(proposal: Proposal, *, dry_run: bool, all_moves: bool, json: bool) -> bool:
    if not json:
        proposal.show(all_moves=all_moves)
    elif dry_run:
        print_json(proposal.as_json())
    return dry_run


def _unregister(port: ProtocolPort, broker: int, patience_s: float) -> None:
    """A broker that runs would register itself again: it has to be stopped first."""
    since_s = port.now_s()
    told = False
    while broker in port.observe(()).serving:
        if not told:
            note(f"Broker {broker} holds nothing any more: stop it now. It is forgotten when it is gone.")
            told = True
        if port.now_s() - since_s > patience_s:
            raise CliError(
                f"broker {broker} is drained, but still runs, so it was not unregistered",
                hint=f"stop it, and rerun `penstock brokers drain {broker} --unregister`",
            )
        port.pause(POLL_S)
    port.unregister(broker)


def _loads(model: ClusterModel) -> list[dict[str, int]]:
    return [
        {"id": broker, "replicas": load.replicas, "leaders": load.leaders, "stored_bytes": load.size_bytes}
        for broker, load in sorted(model.loads().items())
    ]


def _tell_loads(model: ClusterModel) -> None:
    for broker, load in sorted(model.loads().items()):
        held = plural(load.replicas, "replica")
        note(f"broker {broker}: {held}, first of {load.leaders:,}, {size_of(load.size_bytes)}")
