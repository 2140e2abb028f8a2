"""`penstock reassign`: partitions onto other brokers, by a plan that is a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from penstock.balance import (
    ClusterModel,
    Executor,
    Move,
    Plan,
    PlanFile,
    PlanRefused,
    State,
    Throttled,
    place,
    refuse_misfits,
    state_of,
)
from penstock.cli import exit_codes, plan_view
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
    print_report,
    read_plan,
    write_plan,
)
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
from penstock.cli.output import Cell, note, plural, print_json, print_line, print_table, size_of

if TYPE_CHECKING:
    from penstock.ops.cluster_port import ProtocolPort

app = Commands(help="Move partitions to other brokers, following a plan.")

PlanArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="A plan written by Penstock or by kafka-reassign-partitions.")
]


@app.command(
    epilog=examples(
        ("penstock reassign generate --topic orders --brokers 2,3,4", "a plan that puts a topic onto those brokers"),
        ("penstock reassign generate --topic orders --replication-factor 3", "a plan that gives it three replicas"),
        ("penstock reassign generate --dry-run", "what an even spread of everything would take"),
    )
)
def generate(
    topic: Annotated[
        list[str] | None, typer.Option("--topic", metavar="NAME", help="Only this topic; repeatable.")
    ] = None,
    brokers: Annotated[str, typer.Option(metavar="1,2,3", help="The brokers to use; all live ones if not given.")] = "",
    replication_factor: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="The new number of replicas; unchanged if not given.")
    ] = None,
    plan: PlanPath = None,
    dry_run: DryRun = False,
    all_moves: AllMoves = False,
    throttle: Throttle = DEFAULT_THROTTLE,
    step: Step = DEFAULT_STEP,
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Write a plan that spreads topics evenly over brokers, with as few moves as possible."""
    rate, share = parse_throttle(throttle), parse_share(step, "--step")
    with port_to(Cluster(bootstrap_server, command_config, timeout), "make a plan") as port:
        model = port.observe(disks=True)
        _require_topics(model, topic)
        wanted = parse_ids(brokers, "--brokers") if brokers else model.serving
        made = place(model, topic, wanted, replication_factor)
        proposal = Proposal(model, made, made_by="reassign generate", throttle=rate, step=share)
    path = plan or new_path("reassign")
    if made.moves and not dry_run:
        write_plan(path, proposal.file)
    if json:
        print_json({**proposal.as_json(), "plan": str(path) if made.moves and not dry_run else None})
        return
    proposal.show(all_moves=all_moves)
    if not made.moves:
        note("All replicas are already in place: nothing to move.")
    elif not dry_run:
        note(f"The plan is in {path}: `penstock reassign execute {path}` carries it out.")


@app.command(
    epilog=examples(
        ("penstock reassign execute plan.json --dry-run", "what it would do"),
        ("penstock reassign execute plan.json", "carries it out, or resumes it"),
        ("penstock reassign execute plan.json --throttle 20MB --step 5%", "more gently"),
    )
)
def execute(
    plan: PlanArgument,
    dry_run: DryRun = False,
    yes: Yes = False,
    all_moves: AllMoves = False,
    throttle: Annotated[
        str, typer.Option(metavar="SIZE", help="Another limit per second and broker than the plan's; `none` for none.")
    ] = "",
    step: Annotated[str, typer.Option(metavar="SHARE", help="Other steps than the plan's: 10%.")] = "",
    patience: Patience = DEFAULT_PATIENCE,
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Execute a plan in throttled steps. After an interruption, run it again to resume."""
    patience_s = parse_span_s(patience, "--patience")
    with port_to(Cluster(bootstrap_server, command_config, timeout), "carry out the plan") as port:
        model = port.observe(disks=True)
        given = read_plan(plan, model)
        file = _chosen(given, model, throttle, step)
        refuse_misfits(file, model)
        left = [move for move in file.moves if state_of(move, model) is not State.DONE]
        proposal = Proposal(
            model,
            Plan(tuple(left)),
            made_by=file.made_by,
            throttle=file.throttle,
            step=file.step,
            leaving=file.leaving,
        )
        if dry_run and json:
            print_json(proposal.as_json())
            return
        if not json:
            proposal.show(all_moves=all_moves)
        if dry_run:
            return
        if left:
            proposal.require_fit()
            ask(plan_view.summary(model, proposal.plan, file.throttle, file.step) + ". Go on?", yes=yes)
            if given.rates_before is not None and file.throttle != given.throttle:
                file = _without_leftovers(port, given, file)
            write_plan(plan, file)
        else:
            note("All of the plan is done.")
        report = carry_out(port, file, plan, patience_s)
    print_report(report, plan, json=json)


@app.command(
    epilog=examples(
        ("penstock reassign verify plan.json", "how far a plan is; when it is done, its throttles are taken away"),
        ("penstock reassign verify plan.json --json", "for a script; exit code 10 while it is not done"),
    )
)
def verify(
    plan: PlanArgument,
    keep_throttle: Annotated[
        bool, typer.Option("--keep-throttle", help="Keep the throttles, even if all moves are done.")
    ] = False,
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show the progress of a plan. Removes its throttles once nothing moves any more."""
    with port_to(Cluster(bootstrap_server, command_config, timeout), "verify the plan") as port:
        model = port.observe()
        file = read_plan(plan, model)
        executor = Executor(port, file, save=lambda changed: write_plan(plan, changed))
        counts = executor.counts()
        released = False if counts.moving or keep_throttle else executor.release()
        model = port.observe({move.topic for move in file.moves})
    states = [(move, state_of(move, model)) for move in file.moves]
    if json:
        print_json(
            {
                "done": counts.done,
                "moving": counts.moving,
                "not_started": counts.pending,
                "changed_by_others": counts.stale,
                "throttles_removed": released,
                "partitions": [
                    {"topic": move.topic, "partition": move.index, "replicas": list(move.after), "state": str(state)}
                    for move, state in states
                ],
            }
        )
    else:
        unfinished: list[list[Cell]] = [
            [str(move.key), ",".join(map(str, move.after)), str(state)]
            for move, state in states
            if state is not State.DONE
        ]
        if unfinished:
            print_table("", ("partition", "to", "state"), unfinished)
        print_line(
            f"{counts.done:,} of {len(file.moves):,} done, {counts.moving:,} moving, {counts.pending:,} not started, "
            f"{counts.stale:,} changed by others"
        )
        if released:
            note("Its throttles are gone.")
    if counts.done < len(file.moves):
        raise CliError(
            "the plan is not done",
            exit_codes.UNHEALTHY,
            "wait, or go on with `penstock reassign execute`" if not counts.stale else "make a new plan for the rest",
        )


@app.command(
    epilog=examples(
        ("penstock reassign cancel plan.json", "cancels moves in progress; completed moves stay"),
        ("penstock reassign cancel --all", "cancels all reassignments of the cluster, and removes all throttles"),
    )
)
def cancel(
    plan: Annotated[Path | None, typer.Argument(metavar="FILE", help="The plan to cancel.", show_default=False)] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Cancel every running reassignment, and remove every throttle.")
    ] = False,
    yes: Yes = False,
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Cancel running reassignments: partitions return to their old replicas, and throttles are removed."""
    if (plan is not None) == everything:
        raise CliError("no reassignment is named", exit_codes.USAGE, "name the file of the plan, or give --all")
    with port_to(Cluster(bootstrap_server, command_config, timeout), "cancel the reassignment") as port:
        model = port.observe()
        if plan is not None:
            path, file = plan, read_plan(plan, model)
            counts = Executor(port, file, save=lambda changed: write_plan(path, changed)).cancel()
        else:
            file = PlanFile(_ongoing(model))
            ask(f"End {plural(len(file.moves), 'reassignment')}?", yes=yes or not file.moves)
            counts = Executor(port, file, save=lambda changed: None).cancel()
            _unthrottle(port, model)
    if json:
        print_json({"cancelled": counts.moving, "done": counts.done, "not_started": counts.pending})
        return
    note(
        f"{plural(counts.moving, 'move')} cancelled, {counts.done:,} had been done and stay so, "
        f"{counts.pending:,} were not begun. Throttles are gone."
    )
    if plan is not None and counts.done < len(file.moves):
        note(f"`penstock reassign execute {plan}` would go on with it.")


@app.command(epilog=examples(("penstock reassign status", "what is being moved in the cluster, and how far it is")))
def status(
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show all running reassignments and throttles."""
    with port_to(Cluster(bootstrap_server, command_config, timeout), "list the reassignments") as port:
        model = port.observe(disks=True)
        moves = _ongoing(model)
        copied = [port.copied_bytes([move]) if move.coming else 0 for move in moves]
        rates = {broker: pair for broker, pair in port.rates(model.serving).items() if pair != (None, None)}
    if json:
        print_json(
            {
                "moving": [
                    {
                        "topic": move.topic,
                        "partition": move.index,
                        "from": list(move.before),
                        "to": list(move.after),
                        "copied_bytes": have,
                        "bytes": move.bytes_to_move,
                    }
                    for move, have in zip(moves, copied, strict=True)
                ],
                "throttles": {str(broker): {"leader": pair[0], "follower": pair[1]} for broker, pair in rates.items()},
            }
        )
        return
    if moves:
        rows: list[list[Cell]] = [
            [
                str(move.key), ",".join(map(str, move.before)), ",".join(map(str, move.after)), size_of(have),
                size_of(move.bytes_to_move),
            ]
            for move, have in zip(moves, copied, strict=True)
        ]  # fmt: skip
        print_table("", ("partition", "from", "to", "copied", "of"), rows)
    else:
        note("Nothing is being moved.")
    for broker, (leader, follower) in rates.items():
        told = [f"{name} {size_of(rate)}/s" for name, rate in (("sends", leader), ("takes", follower)) if rate]
        print_line(f"broker {broker} is throttled: {', '.join(told)}")


def parse_ids(text: str, option: str) -> list[int]:
    """`1,2,3`."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isdecimal() for part in parts):
        raise CliError(f"{option} {text}: these are no brokers' ids, such as 1,2,3", exit_codes.USAGE)
    return list(dict.fromkeys(int(part) for part in parts))


def _require_topics(model: ClusterModel, topics: list[str] | None) -> None:
    there = {one.topic for one in model.partitions}
    for name in topics or []:
        if name not in there:
            raise CliError(f"there is no topic {name}", exit_codes.NOT_FOUND, "`penstock topics list` shows them")


def _chosen(file: PlanFile, model: ClusterModel, throttle: str, step: str) -> PlanFile:
    """The plan with the overrides of the command line; a plan of another tool gets our defaults."""
    if file.cluster is None:
        default = parse_throttle(throttle or DEFAULT_THROTTLE)
        file = msgspec.structs.replace(file, cluster=model.cluster_id, throttle=default)
    elif throttle:
        moving = any(state_of(move, model) is State.MOVING for move in file.moves)
        if moving and file.rates_before is not None and parse_throttle(throttle) != file.throttle:
            raise PlanRefused(
                "the throttle of a plan cannot be changed while it moves something",
                "cancel it, and carry it out again with the other throttle",
            )
        file = msgspec.structs.replace(file, throttle=parse_throttle(throttle))
    return msgspec.structs.replace(file, step=parse_share(step, "--step")) if step else file


def _without_leftovers(port: ProtocolPort, given: PlanFile, file: PlanFile) -> PlanFile:
    """The plan with another throttle; what a run before has left of its own, on a broker that was away, is gone."""
    before = Executor(port, given, save=lambda changed: None)
    before.release()
    if before.plan.rates_before is not None:
        away = ", ".join(map(str, before.plan.rates_before))
        raise PlanRefused(
            f"broker {away} has the throttle of an earlier run of the plan, and cannot be asked to take it away",
            "start it, or carry out the plan with the throttle that it had",
        )
    return msgspec.structs.replace(file, rates_before=None)


def _unthrottle(port: ProtocolPort, model: ClusterModel) -> None:
    """Takes every throttle away: nothing moves any more, and the plan that knew what it had set may be lost."""
    lists = port.throttled(sorted({one.topic for one in model.partitions}))
    port.set_throttled({topic: Throttled() for topic, throttled in lists.items() if throttled != Throttled()})
    rates = port.rates(model.serving)
    port.set_rates({broker: (None, None) for broker, pair in rates.items() if pair != (None, None)})


def _ongoing(model: ClusterModel) -> tuple[Move, ...]:
    return tuple(
        Move(
            one.topic,
            one.index,
            tuple(broker for broker in one.replicas if broker not in one.adding),
            one.target,
            one.size_bytes,
        )
        for one in model.partitions
        if one.moving
    )
