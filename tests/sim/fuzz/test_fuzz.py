"""The standing fuzzer: fresh rounds harm nobody, and bugs that are planted are found. `make fuzz` runs many more."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from random import Random

import pytest

from penstock.sim.fuzz import bodies, rounds
from penstock.sim.fuzz.decoder import Unreadable, read_values
from penstock.sim.fuzz.minimise import StoredRound, minimise
from penstock.sim.fuzz.rounds import draw_round, run_cases, run_round
from penstock.wire.compression import Codec
from penstock.wire.records import Record, build_batch
from sim.fuzz import planted

CASES = 1_200
FIRST = 10 * int(datetime.now(UTC).strftime("%Y%m%d%H"))
"""The hour decides which rounds are run; a failure names its round."""


@pytest.mark.parametrize("number", [0, 1], ids=["one node", "three nodes"])
def test_a_fresh_round_harms_nobody(number: int) -> None:
    report, _ = run_round(FIRST + number, CASES)
    assert not report.failure, f"round {FIRST + number}: {report.failure}"
    assert report.cases == CASES
    assert report.seen["answer"] > CASES / 3, "most cases end at the door, so little is shown"


def test_a_round_follows_from_its_seed() -> None:
    assert draw_round("7", 100, 1) == draw_round("7", 100, 1)
    assert run_cases("7", 200, 1).seen == run_cases("7", 200, 1).seen


@pytest.mark.parametrize(
    ("bug", "told"),
    [
        (planted.handler_raises, "KeyError"),
        (planted.refused_frame_ends_the_node, "ended: fatal"),
        (planted.refused_frames_are_kept, "memory grew"),
        (planted.working_flag_stays_set, "packed-0 no longer responds"),
        (planted.decompression_has_no_budget, "of the attacker's batches were decompressed"),
        (planted.hosts_reach_the_resolver, "failed: UnicodeError"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_planted_bug_is_found(
    bug: Callable[[pytest.MonkeyPatch], None], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    monkeypatch.setattr(rounds, "GROWTH_BYTES_MAX", 384 << 20)
    failures = (run_cases(seed, rounds.ROUND_CASES, 1).failure for seed in ("1", "2"))
    assert any(told in failure for failure in failures)


def test_a_failing_round_is_made_small_and_can_be_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    planted.handler_raises(monkeypatch)
    failure = run_cases("3", 400, 1).failure
    assert failure
    drawn = StoredRound("3", 1, draw_round("3", 400, 1))
    small = StoredRound.from_json(minimise(drawn, failure).to_json())
    assert len(small.cases) == 1
    assert run_cases(small.seed, small.cases, small.nodes).failure


def test_records_that_nobody_has_looked_at_are_found() -> None:
    """A broker that checks only the headers of batches takes what no reader can read."""
    settings = {"penstock.produce.validation": "header"}
    assert "is poisoned" in run_cases("1", 1_000, 1, settings=settings).failure


# ---- the decoder, which is the judge


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.name)
def test_the_decoder_reads_what_any_producer_sends(codec: Codec) -> None:
    records = [Record(timestamp=1, key=b"k", value=b"%d" % number, headers=(("h", None),)) for number in range(5)]
    data = build_batch(records, base_offset=40, codec=codec) + build_batch(records[:1], base_offset=45)
    found = list(read_values(data))
    assert [value.offset for value in found] == [40, 41, 42, 43, 44, 45]
    assert [value.value for value in found] == [b"0", b"1", b"2", b"3", b"4", b"0"]


def test_the_decoder_refuses_most_poison() -> None:
    """Some of it only looks odd: a timestamp or an attribute that no reader minds."""
    rng = Random(1)
    refused = 0
    for _ in range(300):
        try:
            list(read_values(bodies.poison(rng)))
        except Unreadable:
            refused += 1
    assert refused > 200
