"""Plans as files: Kafka's reassignment JSON with additional fields, which Kafka's tool ignores.

    {"version": 1,
     "partitions": [{"topic": "orders", "partition": 0, "replicas": [4, 2, 3],
                     "was": [1, 2, 3], "bytes": 1048576, "why": "broker 4 takes its share"}],
     "penstock": {"format": 1, "cluster": "…", "made_by": "brokers add 4", "made_at": "…",
                  "throttle": 50000000, "step": 0.1, "rates_before": {"1": [null, null]}}}

`kafka-reassign-partitions` reads `version`, `partitions` and in them `topic`, `partition`, `replicas` and `log_dirs`,
and ignores the rest. So either tool can execute, verify or cancel a plan of the other. A file written by Kafka's tool
has no `was`: it is then taken from the cluster, and changes of the cluster since the plan was made go unnoticed.

`was` and the cluster are enough to resume after an interruption: a partition on `replicas` is done, one on `was` is
not started, and the cluster lists those being moved. `rates_before` are the brokers' throttle rates before ours were
set, to be restored.
"""

from __future__ import annotations

import json
from typing import Final

import msgspec

from penstock.balance.model import ClusterModel
from penstock.balance.plan import STEP_SHARE, Move, PlanRefused

FORMAT: Final = 1
PARTITIONS_MAX: Final = 5_000_000
REPLICAS_MAX: Final = 100
TOPIC_NAME_LENGTH_MAX: Final = 249
BROKER_ID_MAX: Final = 2**31 - 1

Rates = tuple[int | None, int | None]
"""A broker's leader.replication.throttled.rate and follower.replication.throttled.rate; None if it is not set."""


class PlanFile(msgspec.Struct, frozen=True):
    moves: tuple[Move, ...]
    cluster: str | None = None
    """None in a file written by another tool."""
    made_by: str = ""
    made_at: str = ""
    throttle: int | None = None
    """Bytes per second per broker; None for no limit."""
    step: float = STEP_SHARE
    leaving: tuple[int, ...] = ()
    """Brokers that are being emptied; their absence does not stop the plan."""
    rates_before: dict[int, Rates] | None = None
    """None until throttles are set."""


def write(plan: PlanFile) -> str:
    partitions = [
        {
            "topic": move.topic,
            "partition": move.index,
            "replicas": list(move.after),
            "was": list(move.before),
            "bytes": move.size_bytes,
            "why": move.why,
        }
        for move in plan.moves
    ]
    rates = plan.rates_before
    ours = {
        "format": FORMAT,
        "cluster": plan.cluster,
        "made_by": plan.made_by,
        "made_at": plan.made_at,
        "throttle": plan.throttle,
        "step": plan.step,
        "leaving": list(plan.leaving),
        "rates_before": None if rates is None else {str(broker): list(pair) for broker, pair in rates.items()},
    }
    lines = ",\n".join("  " + json.dumps(one, ensure_ascii=False) for one in partitions)
    head = json.dumps(ours, ensure_ascii=False)
    return f'{{"version": 1,\n "penstock": {head},\n "partitions": [\n{lines}\n ]}}\n'


def read(text: str, model: ClusterModel) -> PlanFile:
    """Parses a plan file for this cluster; raises PlanRefused with the reason if it is invalid."""
    try:
        document = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise _malformed(f"it is not JSON ({error})") from None
    if not isinstance(document, dict):
        raise _malformed("it is not a JSON object")
    version = document.get("version")
    if version != 1 or isinstance(version, bool):
        raise _malformed(f"its version is {version!r}, only 1 is supported")
    ours = document.get("penstock")
    cluster = _cluster(ours)
    if cluster is not None and cluster != model.cluster_id:
        raise PlanRefused(
            f"the plan was made for the cluster {cluster}, but this is {model.cluster_id}",
            "check --bootstrap-server, or make a new plan",
        )
    moves = _moves(document.get("partitions"), model)
    if not isinstance(ours, dict):
        return PlanFile(moves)
    return PlanFile(
        moves,
        cluster=cluster,
        made_by=_text(ours, "made_by"),
        made_at=_text(ours, "made_at"),
        throttle=_throttle(ours.get("throttle")),
        step=_step(ours.get("step", STEP_SHARE)),
        leaving=_brokers(ours.get("leaving", []), "leaving", empty_ok=True),
        rates_before=_rates(ours.get("rates_before")),
    )


def _moves(value: object, model: ClusterModel) -> tuple[Move, ...]:
    if not isinstance(value, list):
        raise _malformed('it has no list "partitions"')
    if len(value) > PARTITIONS_MAX:
        raise _malformed(f"it has {len(value):,} partitions, the limit is {PARTITIONS_MAX:,}")
    moves: list[Move] = []
    seen: set[tuple[str, int]] = set()
    for number, one in enumerate(value):
        move = _move(one, f"partitions[{number}]", model)
        key = (move.topic, move.index)
        if key in seen:
            raise _malformed(f"partitions[{number}]: {move.key} is listed twice")
        seen.add(key)
        moves.append(move)
    return tuple(moves)


def _move(value: object, where: str, model: ClusterModel) -> Move:
    if not isinstance(value, dict):
        raise _malformed(f"{where} is not an object")
    topic, index = value.get("topic"), value.get("partition")
    if not isinstance(topic, str) or not 0 < len(topic) <= TOPIC_NAME_LENGTH_MAX:
        raise _malformed(f'{where} has no valid "topic"')
    if not _is_number(index, BROKER_ID_MAX):
        raise _malformed(f'{where} has no valid "partition"')
    assert isinstance(index, int)
    after = _brokers(value.get("replicas"), f"{where}: replicas")
    for directory in value.get("log_dirs") or []:
        if directory != "any":
            raise _malformed(f"{where} names the log directory {directory!r}; only brokers can be chosen here")
    known = model.by_key.get((topic, index))
    if "was" in value:
        before = _brokers(value["was"], f"{where}: was")
    else:
        # Not in the file: the original replicas are those that a reassignment in progress does not add.
        before = () if known is None else tuple(one for one in known.replicas if one not in known.adding)
    size = value.get("bytes", known.size_bytes if known is not None else 0)
    if not _is_number(size, 2**63):
        raise _malformed(f'{where} has no valid "bytes"')
    assert isinstance(size, int)
    why = value.get("why", "")
    return Move(topic, index, before, after, size, why if isinstance(why, str) else "")


def _brokers(value: object, where: str, *, empty_ok: bool = False) -> tuple[int, ...]:
    if not isinstance(value, list) or not (value or empty_ok) or len(value) > REPLICAS_MAX:
        raise _malformed(f"{where} is not a list of brokers")
    for one in value:
        if not _is_number(one, BROKER_ID_MAX):
            raise _malformed(f"{where}: {one!r} is not a broker id")
    if len(set(value)) != len(value):
        raise _malformed(f"{where}: a broker is listed twice in {value}")
    return tuple(value)


def _cluster(ours: object) -> str | None:
    if ours is None:
        return None
    if not isinstance(ours, dict):
        raise _malformed('"penstock" is not an object')
    if ours.get("format") != FORMAT:
        raise _malformed(f"its format is {ours.get('format')!r}, only {FORMAT} is supported")
    cluster = ours.get("cluster")
    if cluster is not None and not isinstance(cluster, str):
        raise _malformed('"cluster" is not a string')
    return cluster


def _throttle(value: object) -> int | None:
    if value is None:
        return None
    if not _is_number(value, 2**63 - 1) or value == 0:
        raise _malformed(f'"throttle" is {value!r}, not a number of bytes per second')
    assert isinstance(value, int)
    return value


def _step(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise _malformed(f'"step" is {value!r}, not a share above 0 and up to 1')
    return float(value)


def _rates(value: object) -> dict[int, Rates] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise _malformed('"rates_before" is not an object')
    found: dict[int, Rates] = {}
    for broker, pair in value.items():
        if not broker.isdecimal() or not isinstance(pair, list) or len(pair) != 2:
            raise _malformed('"rates_before" does not give two rates for each broker')
        found[int(broker)] = (_throttle(pair[0]), _throttle(pair[1]))
    return found


def _text(ours: dict[str, object], name: str) -> str:
    value = ours.get(name, "")
    return value if isinstance(value, str) else ""


def _is_number(value: object, largest: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= largest


def _malformed(what: str) -> PlanRefused:
    return PlanRefused(f"the plan file is invalid: {what}", "make one with `penstock reassign generate`")
