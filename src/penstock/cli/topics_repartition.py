"""`penstock topics repartition`: another number of partitions for a topic that is in use."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import exit_codes, impact
from penstock.cli.asking import confirm
from penstock.cli.carrying_out import parse_span_s
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
from penstock.cli.output import note, plural, print_json, print_line, print_table
from penstock.cli.pipeline_files import Master, require_spark
from penstock.cli.pipeline_work import with_spark

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from penstock.pipeline.repartition.driving import Progress
    from penstock.pipeline.repartition.plan import RepartitionOrder, RepartitionPlan

EXAMPLES = examples(
    ("penstock topics repartition orders --partitions 24 --dry-run", "what it would copy, and which groups would move"),
    ("penstock topics repartition orders --partitions 24", "copies, asks, switches, and moves the groups"),
    ("penstock topics repartition orders --partitions 24 --yes --on-switch ./deploy.sh", "without a question"),
    ("penstock topics repartition orders --status", "how far it is; on any machine"),
    ("penstock topics repartition orders --abort", "goes back, until the switch"),
)
SAMPLE_RECORDS = 10_000
AUTO = "auto"
LINE_EVERY_S = 10.0
HOOK_TIMEOUT_S = 600.0
_BY_IMPACT = dict(zip(impact.PARTITIONERS, ("murmur2_random", "consistent_random", "fnv1a_random"), strict=True))


def repartition(
    name: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.", show_default=False)],
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, help="The wanted number of partitions.")
    ] = None,
    to: Annotated[str, typer.Option(metavar="NAME", help="The new topic's name; TOPIC.pN if not given.")] = "",
    partitioner: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Where the producers put a key: murmur2_random (Java), consistent_random (librdkafka), fnv1a_random "
            "(Sarama); auto finds out from a sample.",
        ),
    ] = AUTO,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Switch without asking once the copy has caught up.")
    ] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Copy and follow until Ctrl-C, and do not switch.")] = False,
    on_switch: Annotated[
        str,
        typer.Option(
            metavar="COMMAND",
            help="Run this when producers may write to the new topic. It gets PENSTOCK_SOURCE and PENSTOCK_TARGET.",
        ),
    ] = "",
    group_wait: Annotated[
        str, typer.Option(metavar="SPAN", help="How long to wait for consumers to stop; without end if not given.")
    ] = "",
    producers_stopped: Annotated[
        bool, typer.Option("--producers-stopped", help="Use no fence: the producers of TOPIC have been stopped.")
    ] = False,
    lease: Annotated[
        str, typer.Option(metavar="SPAN", help="How long tasks may write a chunk; after a crash a run waits for it.")
    ] = "2m",
    status: Annotated[bool, typer.Option("--status", help="Show how far it is, and change nothing.")] = False,
    abort: Annotated[bool, typer.Option("--abort", help="Go back: delete the copy, and lift the fence.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")] = False,
    master: Master = None,
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Move a topic to another number of partitions while it is in use; no record is lost, and keys stay in order.

    Spark copies the topic to a new one and follows it. At the switch the old topic becomes read-only, the rest is
    copied, producers go on with the new topic, and each consumer group gets its position there once its consumers have
    stopped. Interrupted at any point, the same command resumes it, on any machine.
    """
    if sum((status, abort, dry_run)) > 1:
        raise CliError("give only one of --status, --abort and --dry-run", exit_codes.USAGE)
    cluster = Cluster(bootstrap_server, command_config, timeout)
    cluster.broker_ids()  # a cluster that cannot be reached is told as by every command
    with _told():
        if status:
            _show_status(cluster, name, json=json)
        elif abort:
            _abort(cluster, name, yes=yes, json=json)
        else:
            _run(
                cluster, name, partitions, to, partitioner, yes=yes, follow=follow, on_switch=on_switch,
                group_wait_s=parse_span_s(group_wait, "--group-wait") if group_wait else None,
                producers_stopped=producers_stopped, lease_s=_lease_s(lease), dry_run=dry_run, master=master, json=json,
            )  # fmt: skip


def _run(
    cluster: Cluster,
    name: str,
    partitions: int | None,
    to: str,
    partitioner: str,
    *,
    yes: bool,
    follow: bool,
    on_switch: str,
    group_wait_s: float | None,
    producers_stopped: bool,
    lease_s: float,
    dry_run: bool,
    master: str | None,
    json: bool,
) -> None:
    from penstock.pipeline.repartition.ledger import read_plan
    from penstock.pipeline.repartition.plan import Phase, RepartitionOrder

    if not (dry_run or follow or yes or sys.stdin.isatty()):
        raise CliError(
            "confirmation needed, but stdin is not a terminal",
            exit_codes.USAGE,
            "add --yes to switch once the copy has caught up, or --follow to copy only",
        )
    found = read_plan(_properties(cluster), name)
    underway = found if found is not None and not found.phase.is_over else None
    if partitions is None:
        if underway is None:
            raise CliError("say how many partitions it shall have: --partitions N", exit_codes.USAGE)
        partitions = underway.partitions
    sampled = None
    if underway is None:
        sampled = _sample(cluster, name, partitions)
        partitioner = _partitioner(partitioner, sampled)
    else:
        partitioner = underway.partitioner
    order = RepartitionOrder(name, partitions, to, partitioner)
    if dry_run:
        _show_dry_run(cluster, order, underway, json=json)
        return
    require_spark()
    plan = _drive(
        cluster, order, yes=yes, follow=follow, on_switch=on_switch, group_wait_s=group_wait_s, lease_s=lease_s,
        producers_stopped=producers_stopped, master=master, json=json,
    )  # fmt: skip
    _report(plan, json=json)
    if plan.phase is not Phase.DONE and not follow:
        raise CliError(
            f"{plan.source} is switched, but not all groups have moved"
            if plan.phase.has_switched
            else f"the repartitioning of {plan.source} is not done: {plan.phase}",
            exit_codes.UNHEALTHY,
            "stop their consumers, and run the same command again",
        )


def _drive(
    cluster: Cluster,
    order: RepartitionOrder,
    *,
    yes: bool,
    follow: bool,
    on_switch: str,
    group_wait_s: float | None,
    lease_s: float,
    producers_stopped: bool,
    master: str | None,
    json: bool,
) -> RepartitionPlan:
    from penstock.pipeline.repartition.driving import Repartition, Wishes
    from penstock.spark import build_session

    stop = threading.Event()
    agreed = [yes]

    def may_switch(plan: RepartitionPlan) -> bool:
        if follow:
            return False
        if not agreed[0]:
            view.pause()
            confirm(
                f"{plan.target} has caught up. Make {plan.source} read-only now, and let producers switch to "
                f"{plan.target}?"
            )
            agreed[0] = True
            return False  # the copy goes on with what came meanwhile, and asks no more
        return True

    def announce(plan: RepartitionPlan) -> None:
        note(f"SWITCHED: producers may write to {plan.target} now; {plan.source} refuses records.")
        if on_switch:
            _run_hook(on_switch, plan)

    with _View(quiet=json) as view:
        wishes = Wishes(
            may_switch=may_switch, announce=announce, show=view.show, stop=stop, group_wait_s=group_wait_s,
            producers_stopped=producers_stopped, lease_s=lease_s,
        )  # fmt: skip

        def work() -> RepartitionPlan:
            spark = build_session(f"penstock: repartition {order.source}", master=master)
            return Repartition(spark, cluster.bootstrap_server, order, cluster.properties, wishes).run()

        try:
            return with_spark(work)
        except KeyboardInterrupt:
            stop.set()
            note("interrupted; the same command resumes it")
            raise


class _View:
    """A bar on a terminal, a line now and then elsewhere; both on standard error."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._bar: Bar | None = None
        self._task = 0
        self._line_at_s = 0.0
        self._told = ""

    def __enter__(self) -> _View:
        return self

    def __exit__(self, *exception: object) -> None:
        self.pause()

    def pause(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def show(self, progress: Progress) -> None:
        if progress.waiting_for:
            self.pause()
            self._tell(
                f"waiting for the consumers of {', '.join(progress.waiting_for)} to stop: then start them on the new "
                "topic, not earlier"
            )
        elif sys.stderr.isatty() and not self._quiet:
            self._draw(progress)
        else:
            now_s = time.monotonic()
            if now_s >= self._line_at_s:
                self._line_at_s = now_s + LINE_EVERY_S
                note(_line(progress))

    def _tell(self, text: str) -> None:
        if self._told != text:
            note(text)
            self._told = text

    def _draw(self, progress: Progress) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as Bar

        if self._bar is None:
            self._bar = Bar(
                TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[left]}"),
                console=Console(stderr=True), transient=True,
            )  # fmt: skip
            self._task = self._bar.add_task(str(progress.phase), total=progress.total, left="")
            self._bar.start()
        self._bar.update(
            self._task,  # type: ignore[arg-type]
            description=str(progress.phase),
            completed=progress.done,
            total=progress.total,
            left=_left(progress),
        )


def _line(progress: Progress) -> str:
    return f"{progress.phase}: {progress.done:,} of {progress.total:,} offsets, {_left(progress)}"


def _left(progress: Progress) -> str:
    left_s = progress.left_s
    if progress.falls_behind:
        return (
            f"{progress.per_second:,.0f}/s, and producers write {progress.incoming_per_second:,.0f}/s: it cannot catch "
            "up; give Spark more cores (--master)"
        )
    if left_s is None:
        return "no estimate yet"
    return f"{progress.per_second:,.0f}/s, about {left_s:,.0f} s left"


def _run_hook(command: str, plan: RepartitionPlan) -> None:
    environment = {**os.environ, "PENSTOCK_SOURCE": plan.source, "PENSTOCK_TARGET": plan.target}
    try:
        code = subprocess.run(
            shlex.split(command), env=environment, timeout=HOOK_TIMEOUT_S, stdout=sys.stderr, check=False
        ).returncode
        told = f"ended with exit code {code}" if code else ""
    except (OSError, ValueError) as error:
        told = f"could not be started: {error}"
    except subprocess.TimeoutExpired:
        told = f"did not end within {HOOK_TIMEOUT_S:.0f} s"
    if told:
        note(f"--on-switch {told}. The switch has happened: have the producers write to {plan.target} yourself")


def _show_status(cluster: Cluster, name: str, *, json: bool) -> None:
    from penstock.pipeline.repartition.ledger import read_plan

    plan = read_plan(_properties(cluster), name)
    if plan is None:
        raise CliError(f"{name} is not being repartitioned, and never was", exit_codes.NOT_FOUND)
    _report(plan, json=json)


def _abort(cluster: Cluster, name: str, *, yes: bool, json: bool) -> None:
    from penstock.pipeline.repartition.driving import Repartition
    from penstock.pipeline.repartition.ledger import read_plan
    from penstock.pipeline.repartition.plan import RepartitionOrder

    found = read_plan(_properties(cluster), name)
    if found is None or (found.phase.is_over and not found.phase.has_switched):
        raise CliError(f"{name} is not being repartitioned", exit_codes.NOT_FOUND)
    if not yes and not found.phase.has_switched:
        confirm(f"Delete {found.target}, which holds a copy of {name}, and let {name} be written to again?")
    order = RepartitionOrder(name, found.partitions, found.target, found.partitioner)
    plan = Repartition(None, cluster.bootstrap_server, order, cluster.properties).abort()
    assert plan is not None
    _report(plan, json=json)


def _sample(cluster: Cluster, name: str, partitions: int) -> impact.ImpactReport:
    from penstock.cli.sampling import newest_keys

    now = cluster.partition_count(name)
    return impact.report(name, now, partitions, newest_keys(cluster, name, now, SAMPLE_RECORDS), [])


def _partitioner(wanted: str, sampled: impact.ImpactReport) -> str:
    if wanted != AUTO:
        if wanted not in _BY_IMPACT.values():
            raise CliError(
                f"--partitioner {wanted}: it is {AUTO} or one of {', '.join(_BY_IMPACT.values())}", exit_codes.USAGE
            )
        return wanted
    if sampled.partitioner is not None:
        return _BY_IMPACT[sampled.partitioner]
    if sampled.keys_sampled == 0:
        return "murmur2_random"
    raise CliError(
        f"no known partitioner explains where the keys of {sampled.topic} are, so the copy cannot put them where the "
        "producers will",
        exit_codes.REFUSED,
        "name the one that the producers will use with --partitioner",
    )


def _show_dry_run(cluster: Cluster, order: RepartitionOrder, underway: RepartitionPlan | None, *, json: bool) -> None:
    from penstock.cli.group_lag import earliest_offsets, latest_offsets
    from penstock.pipeline.repartition import fence
    from penstock.pipeline.repartition.groups import Groups

    now = cluster.partition_count(order.source)
    places = {(order.source, partition) for partition in range(now)}
    starts, ends = earliest_offsets(cluster, places), latest_offsets(cluster, places)
    records = sum(ends[place] - starts[place] for place in places)
    chosen = fence.choose_fence(fence.TopicSettings(_properties(cluster)), order.source)
    groups = Groups(_properties(cluster)).reading(order.source)
    result = {
        "topic": order.source,
        "target": order.target_name,
        "partitions": {"now": now, "then": order.partitions},
        "offsets_to_copy": records,
        "partitioner": order.partitioner,
        "fence": f"{chosen.setting}={chosen.value}",
        "groups": sorted(groups),
        "underway": None if underway is None else str(underway.phase),
    }
    if json:
        print_json(result)
        return
    print_line(f"{order.source}: {now} → {order.partitions} partitions, in the new topic {order.target_name}")
    print_line(f"  copies about {plural(records, 'record')}; places keys by {order.partitioner}")
    print_line(f"  at the switch {order.source} gets {chosen.setting}={chosen.value}")
    print_line(f"  moves {plural(len(groups), 'group')}{': ' + ', '.join(sorted(groups)) if groups else ''}")


def _report(plan: RepartitionPlan, *, json: bool) -> None:
    switch_s = (plan.switched_ms - plan.fenced_ms) / 1000 if plan.switched_ms else None
    if json:
        print_json(
            {
                "topic": plan.source,
                "target": plan.target,
                "partitions": plan.partitions,
                "phase": str(plan.phase),
                "records_copied": plan.written,
                "offsets_expired": plan.expired,
                "read_only_for_s": switch_s,
                "groups": {
                    name: {
                        "positions": list(one.target),
                        "records_read_again": one.read_again,
                        "note": one.note or None,
                    }
                    for name, one in plan.groups.items()
                },
            }
        )
        return
    print_line(f"{plan.source} → {plan.target} ({plural(plan.partitions, 'partition')}): {plan.phase}")
    print_line(f"  {plural(plan.written, 'record')} copied")
    if plan.expired:
        print_line(f"  {plural(plan.expired, 'offset')} expired by retention before they were copied")
    if switch_s is not None:
        print_line(f"  producers could not write for {switch_s:.1f} s, from the fence to the switch")
    if plan.groups:
        rows = [(name, one.read_again, one.note or None) for name, one in sorted(plan.groups.items())]
        print_table("", ("group", "reads again", "note"), rows)
    if plan.phase.has_switched:
        print_line(
            f"  {plan.source} is kept, and refuses records. When nobody reads it: penstock topics delete {plan.source}"
        )


def _properties(cluster: Cluster) -> dict[str, str]:
    return {**cluster.properties, "bootstrap.servers": cluster.bootstrap_server}


def _lease_s(text: str) -> float:
    from penstock.pipeline.repartition.copying import LEASE_MIN_S, LEASE_S

    lease_s = parse_span_s(text, "--lease")
    if not LEASE_MIN_S <= lease_s <= LEASE_S:
        raise CliError(f"--lease {text}: it is {LEASE_MIN_S:.0f}s to {LEASE_S:.0f}s", exit_codes.USAGE)
    return lease_s


@contextmanager
def _told() -> Iterator[None]:
    from penstock.pipeline.repartition.plan import RepartitionError

    try:
        yield
    except RepartitionError as error:
        raise CliError(str(error), exit_codes.REFUSED) from None
    except Exception as error:
        # What Spark's side raises about Java and the like names the fix itself.
        if type(error).__module__.startswith("penstock.") and not isinstance(error, CliError):
            raise CliError(str(error)) from None
        raise
