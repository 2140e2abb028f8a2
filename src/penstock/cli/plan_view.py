"""Plans for people and for scripts: what a cluster is like before and after, what moves, and how long it takes."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from penstock.balance import ClusterModel, Finding, Flow, Move, Plan, flows, least_seconds
from penstock.cli.output import Cell, note, plural, print_line, print_table, size_of

MOVES_SHOWN_MAX = 10
BAR_WIDTH = 12
UNTHROTTLED_GUESS = 100_000_000
"""Bytes per second and broker that an estimate assumes where there is no throttle."""


def as_json(
    model: ClusterModel, plan: Plan, findings: Sequence[Finding], throttle: int | None, step: float
) -> dict[str, object]:
    """The whole preview."""
    before, after = model.loads(), model.loads(plan.assignment)
    moving = flows(model, plan.moves)
    return {
        "cluster": model.cluster_id,
        "brokers": [
            {
                "id": broker.id,
                "rack": broker.rack,
                "in_service": broker.in_service,
                "replicas": [before[broker.id].replicas, after[broker.id].replicas],
                "leaders": [before[broker.id].leaders, after[broker.id].leaders],
                "stored_bytes": [before[broker.id].size_bytes, after[broker.id].size_bytes],
                "bytes_in": moving.get(broker.id, Flow()).bytes_in,
                "bytes_out": moving.get(broker.id, Flow()).bytes_out,
            }
            for broker in model.brokers.values()
        ],
        "moves": [
            {
                "topic": move.topic,
                "partition": move.index,
                "was": list(move.before),
                "replicas": list(move.after),
                "bytes": move.bytes_to_move,
                "why": move.why,
            }
            for move in plan.moves
        ],
        "replicas_to_move": plan.replicas_to_move,
        "bytes_to_move": plan.bytes_to_move,
        "throttle": throttle,
        "step": step,
        "estimate_seconds": round(least_seconds(model, plan.moves, throttle or UNTHROTTLED_GUESS, step), 1),
        "notes": list(plan.notes),
        "findings": [{"text": one.text, "hint": one.hint, "stops": one.stops} for one in findings],
    }


def show(
    model: ClusterModel, plan: Plan, findings: Sequence[Finding], throttle: int | None, step: float, *, all_moves: bool
) -> None:
    """Tables of brokers before and after, and of the moves with their reasons."""
    _show_brokers(model, plan)
    shown = plan.moves if all_moves else plan.moves[:MOVES_SHOWN_MAX]
    if shown:
        print_table("moves", ("partition", "from", "to", "data", "why"), [_row(move) for move in shown])
        if len(shown) < len(plan.moves):
            note(f"and {len(plan.moves) - len(shown):,} more: --all-moves shows them")
    for one in findings:
        note(f"{'in the way' if one.stops else 'note'}: {one.text}")
    for text in plan.notes:
        note(f"note: {text}")
    if plan.moves:
        print_line(summary(model, plan, throttle, step))


def summary(model: ClusterModel, plan: Plan, throttle: int | None, step: float) -> str:
    """One line: what moves, in how many steps, how long."""
    copying = sum(1 for move in plan.moves if move.coming)
    fewer = sum(1 for move in plan.moves if move.leaving and not move.coming)
    reordered = len(plan.moves) - copying - fewer
    parts = [f"{plural(plan.replicas_to_move, 'replica')} of {plural(copying, 'partition')} to move"]
    if fewer:
        parts.append(f"{plural(fewer, 'partition')} to have fewer replicas")
    if reordered:
        parts.append(f"{plural(reordered, 'partition')} to be led by another replica")
    parts.append(f"{size_of(plan.bytes_to_move)} to copy")
    parts.append(f"in steps of {step:.0%}")
    limit = f"{size_of(throttle)}/s for each broker" if throttle else "no throttle"
    seconds = least_seconds(model, plan.moves, throttle or UNTHROTTLED_GUESS, step)
    parts.append(f"{limit}: about {span_of(seconds)}" + ("" if throttle else f" at {size_of(UNTHROTTLED_GUESS)}/s"))
    return ", ".join(parts)


def span_of(seconds: float) -> str:
    """A span of time for a person."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 5400:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h"


def bar(share: float) -> str:
    """A part of a whole."""
    filled = round(max(0.0, min(1.0, share)) * BAR_WIDTH)
    return "█" * filled + "░" * (BAR_WIDTH - filled)


def _show_brokers(model: ClusterModel, plan: Plan) -> None:
    before, after = model.loads(), model.loads(plan.assignment)
    moving = flows(model, plan.moves)
    rows: list[list[Cell]] = []
    if not sys.stdout.isatty():
        for broker in model.brokers.values():
            was, will, flow = before[broker.id], after[broker.id], moving.get(broker.id, Flow())
            rows.append([
                broker.id, broker.rack, was.replicas, will.replicas, was.leaders, will.leaders,
                size_of(was.size_bytes), size_of(will.size_bytes), size_of(flow.bytes_in), size_of(flow.bytes_out),
            ])  # fmt: skip
        columns = ("broker", "rack", "replicas", "after", "leaders", "after", "stored", "after", "takes", "sends")
        print_table("", columns, rows)
        return
    largest = max((load.size_bytes for load in (*before.values(), *after.values())), default=0) or 1
    for broker in model.brokers.values():
        was, will, flow = before[broker.id], after[broker.id], moving.get(broker.id, Flow())
        rows.append([
            f"{broker.id} ({broker.rack})" if broker.rack else str(broker.id),
            f"{was.replicas:,} → {will.replicas:,}",
            f"{was.leaders:,} → {will.leaders:,}",
            f"{bar(was.size_bytes / largest)} {size_of(was.size_bytes)}\n"
            f"{bar(will.size_bytes / largest)} {size_of(will.size_bytes)}",
            size_of(flow.bytes_in),
            size_of(flow.bytes_out),
        ])  # fmt: skip
    head = ("broker", "replicas", "leaders", "stored, now and then", "takes", "sends")
    print_table("brokers, before and after", head, rows)


def _row(move: Move) -> list[Cell]:
    return [
        str(move.key),
        ",".join(map(str, move.before)),
        ",".join(map(str, move.after)),
        size_of(move.bytes_to_move),
        move.why or None,
    ]
