"""`penstock cluster balance`: by size, traffic and leadership, once or again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from penstock.balance import (
    SOFT_GOALS,
    BrokerGroup,
    ClusterModel,
    ExecutionFailed,
    Goal,
    Plan,
    PlanRefused,
    Rules,
    balance,
    shortfalls,
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
from penstock.cli.output import note, plural, print_json
from penstock.cli.reassign import parse_ids

if TYPE_CHECKING:
    from penstock.ops.cluster_port import ProtocolPort

DEFAULT_SAMPLE = "5s"
TRIGGER_FACTOR = 2.0
"""Self-balancing begins when a broker is so many tolerances away, and ends when all are within one: so that it does
not move things to and fro at the edge."""
LOOKS_BEFORE_ACTING = 2
"""A peak that is gone at the next look is not worth moving data for."""

EXAMPLES = examples(
    ("penstock cluster balance --dry-run", "what would move, and why"),
    ("penstock cluster balance", "even out replicas, leaders, size and traffic, in this order"),
    ("penstock cluster balance --goals leaders,traffic", "only those, in this order"),
    ("penstock cluster balance --group 'payments-*=4,5,6'", "and keep those topics on those brokers"),
    ("penstock cluster balance --every 10m --yes", "look every ten minutes, and act when it is worth it"),
)


def balance_cluster(
    goals: Annotated[str, typer.Option(metavar="A,B", help="What to balance, the most important first.")] = ",".join(
        SOFT_GOALS
    ),
    tolerance: Annotated[
        str, typer.Option(metavar="SHARE", help="How far from the mean a broker may be before something is done.")
    ] = "10%",
    max_disk: Annotated[str, typer.Option(metavar="SHARE", help="How full a broker's disk may be.")] = "85%",
    group: Annotated[
        list[str] | None,
        typer.Option(
            "--group",
            metavar="PATTERN=IDS",
            help="Topics that may be on those brokers only: payments-*=4,5. Repeatable; the first match counts.",
        ),
    ] = None,
    sample: Annotated[str, typer.Option(metavar="SPAN", help="How long to measure traffic.")] = DEFAULT_SAMPLE,
    every: Annotated[
        str, typer.Option(metavar="SPAN", help="Go on: look so often, and act when two looks agree. Ctrl-C stops.")
    ] = "",
    rounds: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="With --every: end after so many looks.")
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
    """Even out a cluster by ordered goals. Racks and disk space come first, always; then what --goals says.

    Every move has its reason. A broker within the tolerance is left alone, so that a balanced cluster stays as it is.
    """
    rules = Rules(
        goals=_goals(goals),
        tolerance=parse_share(tolerance, "--tolerance"),
        disk_share_max=parse_share(max_disk, "--max-disk"),
        groups=tuple(_group(text) for text in group or []),
    )
    rate, share = parse_throttle(throttle), parse_share(step, "--step")
    patience_s, sample_s = parse_span_s(patience, "--patience"), parse_span_s(sample, "--sample")
    every_s = parse_span_s(every, "--every") if every else None
    if every_s is not None and (dry_run or plan is not None):
        raise CliError("--every runs continuously: it excludes --dry-run and a plan file", exit_codes.USAGE)
    if every_s is not None and not yes:
        ask("Balance continuously from now on, without confirmation of each plan?", yes=yes)
    with port_to(Cluster(bootstrap_server, command_config, timeout), "balance the cluster") as port:
        if every_s is not None:
            keeper = _Keeper(port, rules, rate, share, patience_s, sample_s, json=json)
            keeper.run(every_s, rounds)
            return
        model = _look(port, rules, sample_s)
        made = balance(model, rules)
        proposal = Proposal(model, made, made_by="cluster balance", throttle=rate, step=share)
        if dry_run and json:
            print_json(proposal.as_json())
            return
        if not json:
            proposal.show(all_moves=all_moves)
        if not made.moves:
            if json:
                print_json({"moved": 0})
            note("The cluster is balanced: nothing needs to move.")
        if dry_run or not made.moves:
            return
        proposal.require_fit()
        ask(f"{plan_view.summary(model, made, rate, share)}. Go on?", yes=yes)
        path = plan or new_path("balance")
        write_plan(path, proposal.file)
        note(f"The plan is in {path}.")
        report = carry_out(port, proposal.file, path, patience_s)
    print_report(report, path, json=json)


class _Keeper:
    """Self-balancing: looks, waits for a second look to agree, acts."""

    def __init__(
        self,
        port: ProtocolPort,
        rules: Rules,
        throttle: int | None,
        step: float,
        patience_s: float,
        sample_s: float,
        *,
        json: bool,
    ) -> None:
        self._port = port
        self._rules = rules
        self._throttle = throttle
        self._step = step
        self._patience_s = patience_s
        self._sample_s = sample_s
        self._json = json
        self._agreeing = 0

    def run(self, every_s: float, rounds: int | None) -> None:
        looks = 0
        while True:
            try:
                self._round()
            except (PlanRefused, ExecutionFailed) as reason:
                # Not well enough to be balanced now is no reason to stop looking.
                note(f"not now: {reason}")
                self._agreeing = 0
            looks += 1
            if rounds is not None and looks >= rounds:
                return
            self._port.pause(every_s)

    def _round(self) -> None:
        model = _look(self._port, self._rules, self._sample_s)
        made = balance(model, self._rules)
        if not made.moves or not worth_it(model, self._rules):
            self._agreeing = 0
            self._tell("balanced enough")
            return
        self._agreeing += 1
        if self._agreeing < LOOKS_BEFORE_ACTING:
            self._tell(f"{plural(len(made.moves), 'move')} would help; one more look before anything moves")
            return
        self._agreeing = 0
        self._act(model, made)

    def _act(self, model: ClusterModel, made: Plan) -> None:
        proposal = Proposal(model, made, made_by="cluster balance --every", throttle=self._throttle, step=self._step)
        proposal.require_fit()
        self._tell(plan_view.summary(model, made, self._throttle, self._step))
        path = new_path("balance")
        write_plan(path, proposal.file)
        report = carry_out(self._port, proposal.file, path, self._patience_s)
        if self._json:
            print_json(report_json(report, path), lines=True)
        path.unlink(missing_ok=True)
        self._tell(f"{plural(report.moved, 'move')} done in {plan_view.span_of(report.seconds)}")

    def _tell(self, text: str) -> None:
        if not self._json:
            note(text)


def worth_it(model: ClusterModel, rules: Rules) -> bool:
    """Whether a broker is far enough from a goal to begin; or a hard goal is not met, which planning alone tells."""
    wider = msgspec.structs.replace(rules, tolerance=min(1.0, TRIGGER_FACTOR * rules.tolerance))
    if shortfalls(model, wider):
        return True
    hard_only = msgspec.structs.replace(rules, goals=())
    return bool(balance(model, hard_only).moves)


def _look(port: ProtocolPort, rules: Rules, sample_s: float) -> ClusterModel:
    model = port.observe(disks=True)
    return port.with_traffic(model, sample_s) if Goal.TRAFFIC in rules.goals else model


def _goals(text: str) -> tuple[Goal, ...]:
    known = [str(goal) for goal in SOFT_GOALS]
    names = [part.strip() for part in text.split(",") if part.strip()]
    wrong = [name for name in names if name not in known]
    if wrong or not names or len(set(names)) != len(names):
        raise CliError(
            f"--goals {text}: these are no goals", exit_codes.USAGE, f"choose from {', '.join(known)}, each once"
        )
    return tuple(Goal(name) for name in names)


def _group(text: str) -> BrokerGroup:
    pattern, equals, ids = text.partition("=")
    if not equals or not pattern.strip():
        raise CliError(f"--group {text}: this is not of the form PATTERN=1,2,3", exit_codes.USAGE)
    return BrokerGroup(pattern.strip(), tuple(parse_ids(ids, "--group")))
