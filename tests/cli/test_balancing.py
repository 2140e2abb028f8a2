"""What the commands that move data make of their options, and when balancing by itself begins."""

from __future__ import annotations

import pytest

from penstock.balance import Broker, ClusterModel, Goal, Partition, Rules, balance
from penstock.cli import exit_codes
from penstock.cli.balancing import worth_it
from penstock.cli.carrying_out import parse_share, parse_span_s, parse_throttle
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
