"""`penstock groups reset-offsets` against a cluster: told first, done on request, and seen by who reads next."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cli.grouping import commit, now_ms, produce, read_from, reading
from cli.running import Run
from penstock.cli import exit_codes
from support.apache_kafka import available, kafka_tool

HOUR_MS = 3_600_000


@pytest.fixture
def group(topic: str) -> str:
    return f"group-of-{topic}"


@pytest.fixture
def orders(on: Run, topic: str, bootstrap: str, group: str) -> str:
    """Two partitions: five records of two hours ago, five of now. The group stands at 6 in the first only."""
    assert on("topics", "create", topic, "--partitions", 2).code == exit_codes.OK
    for partition in (0, 1):
        produce(bootstrap, topic, partition, 5, age_ms=2 * HOUR_MS)
        produce(bootstrap, topic, partition, 5)
    commit(bootstrap, group, topic, {0: 6})
    return topic


def planned(on: Run, group: str, *options: object) -> list[tuple[int, int | None, int]]:
    result = on("groups", "reset-offsets", group, *options, "--json")
    assert result.code == exit_codes.OK, result.messages
    told = json.loads(result.output)
    assert told["group"] == group
    assert told["executed"] is ("--execute" in options)
    return [(one["partition"], one["before"], one["after"]) for one in told["changes"]]


@pytest.mark.parametrize(
    ("way", "after"),
    [
        (("--to-earliest",), (0, 0)),
        (("--to-latest",), (10, 10)),
        (("--to-current",), (6, 10)),
        (("--to-offset", "3"), (3, 3)),
        (("--to-offset", "99"), (10, 10)),
        (("--by-duration", "PT1H"), (5, 5)),
        (("--by-duration", "3h"), (0, 0)),
        (("--by-duration", "-PT1H"), (10, 10)),
    ],
    ids=lambda value: " ".join(map(str, value)),
)
def test_what_would_change_is_told_and_nothing_is_changed(
    on: Run, orders: str, group: str, way: tuple[str, ...], after: tuple[int, int]
) -> None:
    for _ in range(2):
        assert planned(on, group, "--topic", orders, *way) == [(0, 6, after[0]), (1, None, after[1])]


def test_a_time_is_given_in_iso_form(on: Run, orders: str, group: str) -> None:
    moment = datetime.fromtimestamp((now_ms() - HOUR_MS) / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.000")
    assert planned(on, group, "--topic", orders, "--to-datetime", moment) == [(0, 6, 5), (1, None, 5)]
    assert planned(on, group, "--topic", f"{orders}:1", "--to-datetime", f"{moment}+00:00") == [(1, None, 5)]


def test_offsets_are_shifted_and_stay_within_the_log(on: Run, orders: str, group: str) -> None:
    assert planned(on, group, "--all-topics", "--shift-by", -2) == [(0, 6, 4)]
    assert planned(on, group, "--all-topics", "--shift-by", -20) == [(0, 6, 0)]
    assert planned(on, group, "--all-topics", "--shift-by", 20) == [(0, 6, 10)]
    impossible = on("groups", "reset-offsets", group, "--topic", orders, "--shift-by", 1)
    assert impossible.code == exit_codes.USAGE
    assert f"{orders}-1 has no offset" in impossible.messages


def test_a_consumer_reads_from_where_the_group_was_set(on: Run, bootstrap: str, orders: str, group: str) -> None:
    dry = on("groups", "reset-offsets", group, "--topic", orders, "--to-offset", 8)
    assert dry.lines == [
        "group\ttopic\tpartition\tbefore\tafter\tchange\tnote",
        f"{group}\t{orders}\t0\t6\t8\t+2\t-",
        f"{group}\t{orders}\t1\t-\t8\t-\t-",
    ]
    assert "--execute" in dry.messages
    assert planned(on, group, "--topic", orders, "--to-offset", 8, "--execute") == [(0, 6, 8), (1, None, 8)]
    assert read_from(bootstrap, group, orders, 4) == [(0, 8), (0, 9), (1, 8), (1, 9)]
    assert planned(on, group, "--all-topics", "--by-duration", "PT1H", "--execute") == [(0, 8, 5), (1, 8, 5)]
    assert read_from(bootstrap, group, orders, 10) == [(p, o) for p in (0, 1) for o in range(5, 10)]


def test_a_new_group_gets_its_first_offsets(on: Run, bootstrap: str, orders: str, group: str) -> None:
    new = f"{group}-new"
    nothing = on("groups", "reset-offsets", new, "--all-topics", "--to-earliest", "--execute")
    assert nothing.code == exit_codes.NOT_FOUND
    assert planned(on, new, "--topic", f"{orders}:0", "--to-offset", 9, "--execute") == [(0, None, 9)]
    assert read_from(bootstrap, new, orders, 1, reset="latest") == [(0, 9)]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_whose_consumers_run_is_refused(
    on: Run, bootstrap: str, orders: str, group: str, protocol: str
) -> None:
    alive = f"{group}-alive"
    with reading(bootstrap, alive, orders, 20, **{"group.protocol": protocol}):
        refused = on("groups", "reset-offsets", alive, "--topic", orders, "--to-earliest", "--execute")
        assert (refused.code, refused.output) == (exit_codes.REFUSED, "")
        assert "Stable, 1 member" in refused.messages
        assert "stop them" in refused.messages
        # What would change may be asked for all the same.
        assert planned(on, alive, "--topic", orders, "--to-earliest") == [(0, 10, 0), (1, 10, 0)]


def test_offsets_are_kept_in_a_file_and_brought_back(
    on: Run, bootstrap: str, orders: str, group: str, tmp_path: Path
) -> None:
    commit(bootstrap, group, orders, {0: 3, 1: 7})
    kept = on("groups", "reset-offsets", group, "--all-topics", "--to-current", "--export")
    assert kept.output == f"{orders},0,3\n{orders},1,7\n"
    file = tmp_path / "offsets.csv"
    file.write_text(kept.output)
    commit(bootstrap, group, orders, {0: 10, 1: 10})
    assert planned(on, group, "--from-file", file, "--execute") == [(0, 10, 3), (1, 10, 7)]
    assert read_from(bootstrap, group, orders, 10) == [(0, o) for o in range(3, 10)] + [(1, o) for o in range(7, 10)]
    some = ("--from-file", "-", "--topic", f"{orders}:1")
    only = on("groups", "reset-offsets", group, *some, "--export", stdin=kept.output)
    assert only.output == f"{orders},1,7\n"


@pytest.mark.compat
@pytest.mark.needs_maven
def test_files_go_both_ways_between_kafkas_tool_and_ours(
    on: Run, bootstrap: str, orders: str, group: str, tmp_path: Path
) -> None:
    if reason := available():
        pytest.skip(reason)
    common = ("--bootstrap-server", bootstrap, "--group", group, "--reset-offsets")
    by_time = ("--topic", orders, "--by-duration", "PT1H")
    theirs = kafka_tool("ConsumerGroupCommand", *common, *by_time, "--export", "--dry-run")
    ours = on("groups", "reset-offsets", group, *by_time, "--export")
    # Kafka's puts long names in quotes, which mean nothing.
    read_back = on("groups", "reset-offsets", group, "--from-file", "-", "--export", stdin=theirs.stdout)
    assert read_back.output == ours.output == f"{orders},0,5\n{orders},1,5\n"
    file = tmp_path / "ours.csv"
    file.write_text(ours.output)
    kafka_tool("ConsumerGroupCommand", *common, "--from-file", str(file), "--execute")
    assert planned(on, group, "--all-topics", "--to-current") == [(0, 5, 5), (1, 5, 5)]


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        (("--topic", "no-such-topic", "--to-earliest"), exit_codes.NOT_FOUND, "penstock topics list"),
        (("--topic", "{orders}:7", "--to-earliest"), exit_codes.NOT_FOUND, "{orders}-7"),
    ],
)
def test_what_is_not_there_is_told(
    on: Run, orders: str, group: str, options: tuple[str, ...], code: int, told: str
) -> None:
    result = on("groups", "reset-offsets", group, *(one.format(orders=orders) for one in options))
    assert result.code == code
    assert told.format(orders=orders) in result.messages


def test_a_file_that_cannot_be_read_is_told(on: Run, group: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.csv"
    file.write_text("orders,0,3\norders;1;3\n")
    result = on("groups", "reset-offsets", group, "--from-file", file)
    assert result.code == exit_codes.USAGE
    assert "line 2" in result.messages
