"""What the commands that move data make of their options, and when balancing by itself begins."""

from __future__ import annotations

import io
import sys

import msgspec
import pytest

from balance.clusters import even
from penstock.balance import Broker, ClusterModel, Goal, Partition, Progress, Rules, add_brokers, balance
from penstock.cli import exit_codes, plan_view
from penstock.cli.balancing import worth_it
from penstock.cli.carrying_out import parse_share, parse_span_s, parse_throttle, progress_bar
from penstock.cli.errors import CliError
from penstock.cli.sizes import parse_size


def _held(*counts: int, racks: tuple[str | None, ...] = (None, None, None)) -> ClusterModel:
    """So many single replicas on each broker."""
    partitions = []
    for number, count in enumerate(counts, 1):
        partitions += [Partition(f"on-{number}", index, (number,), number, (number,)) for index in range(count)]
    brokers = [Broker(number, rack) for number, rack in zip(range(1, len(counts) + 1), racks, strict=True)]
    return ClusterModel("a-cluster", brokers, partitions)


def test_balancing_by_itself_begins_at_twice_the_tolerance() -> None:
    rules = Rules(goals=(Goal.REPLICAS,))
    assert balance(_held(115, 100, 85), rules).moves, "a user who asks gets it evened out"
    assert not worth_it(_held(115, 100, 85), rules), "but nothing moves by itself for so little"
    assert worth_it(_held(130, 100, 70), rules)


def test_replicas_in_one_rack_are_always_worth_it() -> None:
    brokers = [Broker(1, "a"), Broker(2, "a"), Broker(3, "b")]
    model = ClusterModel("a-cluster", brokers, [Partition("t", 0, (1, 2), 1, (1, 2)), Partition("t", 1, (3,), 3, (3,))])
    assert worth_it(model, Rules(goals=()))


@pytest.mark.parametrize(
    ("text", "size"),
    [("50MB", 50_000_000), ("50M", 50_000_000), ("1.5 GB/s", 1_500_000_000), ("64MiB", 67_108_864), ("123", 123)],
)
def test_sizes_are_read(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MB", "-5MB", "5 parsecs", "1e9", "NaN"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no number of bytes"):
        parse_size(text)


def test_options_that_make_no_sense_are_refused() -> None:
    assert parse_throttle("none") is None
    assert parse_throttle("20MB") == 20_000_000
    assert parse_share("10%", "--step") == parse_share("0.1", "--step") == 0.1
    assert parse_span_s("5m", "--patience") == 300
    for parse in (
        lambda: parse_throttle("0"),
        lambda: parse_throttle("much"),
        lambda: parse_share("0", "--step"),
        lambda: parse_share("150%", "--step"),
        lambda: parse_share("nan", "--step"),
        lambda: parse_span_s("soon", "--patience"),
        lambda: parse_span_s("0s", "--patience"),
    ):
        with pytest.raises(CliError) as refused:
            parse()
        assert refused.value.code == exit_codes.USAGE


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_a_bar_on_a_terminal_and_a_line_for_each_step_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    half = Progress(
        step=2, steps=10, moved=3, moves=12, copied_bytes=5_000_000, total_bytes=10_000_000, rate=1e6, left_s=5
    )
    terminal = Terminal()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", terminal)
        patch.setenv("COLUMNS", "120")
        with progress_bar() as (show, say):
            show(half)
            say("brokers 1, 2 have a throttle already")
    shown = terminal.getvalue()
    assert "brokers 1, 2 have a throttle already" in shown
    assert "step 2 of 10" in shown
    assert "━" in shown
    told = "3 of 12 partitions, 5.0 MB of 10.0 MB, 1.0 MB/s, 5 s left"
    assert told in shown
    lines = io.StringIO()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", lines)
        with progress_bar() as (show, _):
            show(half)
            show(half)
            show(msgspec.structs.replace(half, step=3))
    assert lines.getvalue().splitlines() == [f"step 2 of 10: {told}", f"step 3 of 10: {told}"]


def test_a_preview_shows_brokers_before_and_after_what_moves_and_how_long_it_takes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = even(12, 3, 3, empty=1, size_bytes=10_000_000)
    plan = add_brokers(model, [4])
    plan_view.show(model, plan, [], 2_000_000, 0.5, all_moves=False)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("\t")[:9] for line in lines[:5]] == [
        ["broker", "rack", "replicas", "after", "leaders", "after", "stored", "after", "takes"],
        *([one, "-", "12", "9", "4", "3", "120.0 MB", "90.0 MB", "0 B"] for one in "123"),
        ["4", "-", "0", "9", "0", "3", "0 B", "90.0 MB", "90.0 MB"],
    ]
    assert len([line for line in lines if "broker 4 takes its share" in line]) == 9
    # Broker 4 takes 9 × 10 MB at 2 MB/s.
    assert lines[-1] == (
        "9 replicas of 9 partitions to move, 90.0 MB to copy, in steps of 50%, 2.0 MB/s for each broker: about 45 s"
    )
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    plan_view.show(model, plan, [], None, 0.5, all_moves=False)
    assert "12 → 9" in terminal.getvalue()
    assert "█" in terminal.getvalue()
