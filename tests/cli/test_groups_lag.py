"""Lag, trends and verdicts of `penstock groups describe`, from the commits of a live cluster."""

from __future__ import annotations

import json
import threading
import time
from statistics import linear_regression

import pytest

from cli.grouping import commit, described, now_ms, partitions, produce
from cli.running import Run
from penstock.cli import exit_codes, group_history, group_lag
from penstock.cli.connection import Cluster
from penstock.cli.group_history import Unreadable

ROUND_S = 1.5
"""Longer than Burrow's smallest distance of two commits. Verdicts are about time that passes: here it has to."""
ROUNDS = 5


@pytest.fixture
def group(topic: str) -> str:
    return f"group-of-{topic}"


def test_every_verdict_is_told_by_what_was_committed(
    on: Run, bootstrap: str, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    on("topics", "create", topic, "--partitions", 5)
    for partition in range(5):
        produce(bootstrap, topic, partition, 100, age_ms=600_000)
    stalled, rewound, slow, catching_up, up_to_date = range(5)
    times_s: list[float] = []
    for number in range(ROUNDS):
        if number:
            time.sleep(ROUND_S)
        produce(bootstrap, topic, slow, 10, age_ms=2_000)
        commit(
            bootstrap,
            group,
            topic,
            {
                stalled: 40,
                rewound: 60 if number == 0 else 20 + number,
                slow: 10 + number,
                catching_up: 20 * number,
                up_to_date: 100,
            },
        )
        times_s.append(time.monotonic())
    rounds_per_s = linear_regression(times_s, range(ROUNDS)).slope
    # However long it takes until it is asked on a busy machine: the group has committed just now.
    asked_ms = now_ms()
    monkeypatch.setattr(group_lag, "_now_ms", lambda: asked_ms)
    told = partitions(described(on, group))
    assert {partition: one["verdict"] for partition, one in told.items()} == {
        stalled: "STALL",
        rewound: "REWIND",
        slow: "WARN",
        catching_up: "OK",
        up_to_date: "OK",
    }
    assert {partition: one["trend"] for partition, one in told.items()} == {
        stalled: "steady",
        rewound: "steady",
        slow: "growing",
        catching_up: "shrinking",
        up_to_date: "steady",
    }
    assert told[rewound]["reason"] == "it went back from offset 60 to 21 and has not caught up since; 76 records wait"
    assert told[slow]["trend_records_per_second"] == pytest.approx(9 * rounds_per_s, rel=0.3)
    assert told[catching_up]["seconds_to_zero"] == pytest.approx(20 / (20 * rounds_per_s), rel=0.3)
    for partition in (stalled, rewound, slow, catching_up):
        assert told[partition]["lag_seconds"] == pytest.approx(600, abs=60)
    assert (told[up_to_date]["lag"], told[up_to_date]["lag_seconds"]) == (0, 0)


def test_a_consumer_that_is_gone_has_stopped_and_the_exit_code_tells(
    on: Run, bootstrap: str, topic: str, group: str
) -> None:
    on("topics", "create", topic)
    produce(bootstrap, topic, 0, 10, age_ms=600_000)
    commit(bootstrap, f"{group}-other", topic, {0: 10})
    assert on("groups", "describe", f"{group}-other", "--check").code == exit_codes.OK
    commit(bootstrap, group, topic, {0: 4})
    checked = on("groups", "describe", group, "--check")
    assert checked.code == exit_codes.UNHEALTHY
    assert f"{group} is ERR" in checked.messages
    assert f"{topic}-0" in checked.messages
    assert f"  {topic}-0 STOP: no commit for" in checked.output


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_deliberate_reset_is_no_error_and_no_growth(
    on: Run, bootstrap: str, topic: str, group: str, protocol: str
) -> None:
    on("topics", "create", topic)
    produce(bootstrap, topic, 0, 100)
    # All within a second or so, which is when the end of the log at a commit is hardest to tell.
    consume = ("consume", topic, "--group", group, "--from-beginning", "-X", f"group.protocol={protocol}")
    assert len(on(*consume, "--until-end").lines) == 100
    reset = on("groups", "reset-offsets", group, "--topic", topic, "--to-earliest", "--execute")
    assert reset.code == exit_codes.OK, reset.messages
    one = partitions(described(on, group))[0]
    assert (one["lag"], one["verdict"], one["trend"]) == (100, "OK", "steady"), one
    assert "its offset was set back to 0" in str(one["reason"])
    # A consumer comes back and has some way to go.
    assert len(on(*consume, "--max-messages", 10).lines) == 10
    one = partitions(described(on, group))[0]
    assert one["verdict"] in ("OK", "STOP"), one
    assert one["trend"] != "growing"


def test_records_that_just_arrived_are_no_reason_to_worry(on: Run, bootstrap: str, topic: str, group: str) -> None:
    """The group had read everything until a moment ago: its last commit is at what was the end then."""
    on("topics", "create", topic)
    produce(bootstrap, topic, 0, 4, age_ms=600_000)
    commit(bootstrap, group, topic, {0: 4})
    produce(bootstrap, topic, 0, 6)
    one = partitions(described(on, group))[0]
    assert (one["lag"], one["verdict"]) == (6, "OK")


def test_commits_older_than_the_window_are_a_stop(
    on: Run, bootstrap: str, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    on("topics", "create", topic)
    produce(bootstrap, topic, 0, 10, age_ms=600_000)
    commit(bootstrap, group, topic, {0: 4})
    asked_ms = now_ms() + 1_000
    monkeypatch.setattr(group_lag, "_now_ms", lambda: asked_ms)
    one = partitions(described(on, group, "--window", "100ms"))[0]
    assert (one["verdict"], one["complete"]) == ("STOP", 0.0)
    assert str(one["reason"]).endswith("or longer; 6 records wait")


def test_records_that_were_deleted_unread_are_told(on: Run, bootstrap: str, topic: str, group: str) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    on("topics", "create", topic)
    produce(bootstrap, topic, 0, 10)
    commit(bootstrap, group, topic, {0: 2})
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_records([TopicPartition(topic, 0, 7)]).values():
        future.result(60)
    one = partitions(described(on, group))[0]
    assert (one["committed"], one["start"], one["lag"], one["deleted_unread"]) == (2, 7, 8, 5)
    assert "retention deleted 5 records before the group read them" in on("groups", "describe", group).output


def test_a_topic_that_is_gone_leaves_no_lag(on: Run, bootstrap: str, topic: str, group: str) -> None:
    on("topics", "create", topic, f"{topic}-b")
    for name in (topic, f"{topic}-b"):
        produce(bootstrap, name, 0, 3)
        commit(bootstrap, group, name, {0: 1})
    on("topics", "delete", topic, "--yes")
    one = described(on, group)
    found = one["partitions"]
    assert isinstance(found, list)
    # The coordinator forgets the offsets of a deleted topic in its own time.
    by_topic = {partition["topic"]: partition["lag"] for partition in found}
    assert by_topic[f"{topic}-b"] == 2
    assert by_topic.get(topic) is None


def test_samples_do_without_the_history(on: Run, bootstrap: str, topic: str, group: str) -> None:
    on("topics", "create", topic)
    produce(bootstrap, topic, 0, 10)
    commit(bootstrap, group, topic, {0: 4})
    one = described(on, group, "--samples", 3, "--interval", "10ms")
    assert one["source"] == "samples"
    told = partitions(one)[0]
    assert (told["lag"], told["verdict"], told["complete"]) == (6, "STOP", 1.0)
    assert "no member owns it" in str(told["reason"])


def test_where_the_history_cannot_be_read_samples_are_taken(
    on: Run, bootstrap: str, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    on("topics", "create", topic)
    produce(bootstrap, topic, 0, 10)
    commit(bootstrap, group, topic, {0: 4})

    def forbidden(*_: object) -> object:
        raise Unreadable("not for you")

    monkeypatch.setattr(group_lag, "open_readers", forbidden)
    result = on("groups", "describe", group, "--json", "--interval", "10ms")
    assert result.code == exit_codes.OK
    assert "cannot be read: not for you" in result.messages
    assert "--samples" in result.messages
    (one,) = json.loads(result.output)
    assert (one["source"], one["partitions"][0]["verdict"]) == ("samples", "STOP")


def test_watching_shows_what_is_committed_in_between(
    on: Run, bootstrap: str, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    on("topics", "create", topic)
    produce(bootstrap, topic, 0, 10)
    commit(bootstrap, group, topic, {0: 2})
    rounds = iter([5, 10])
    sleep = time.sleep

    def between(seconds: float) -> None:
        if threading.current_thread() is not threading.main_thread():
            sleep(seconds)  # somebody else's thread in this process
            return
        offset = next(rounds, None)
        if offset is None:
            raise KeyboardInterrupt
        commit(bootstrap, group, topic, {0: offset})

    monkeypatch.setattr("penstock.cli.groups_describe.time.sleep", between)
    result = on("groups", "describe", group, "--watch", "--json", "--interval", "10ms")
    assert result.code == exit_codes.INTERRUPTED
    shown = [json.loads(line)[0]["partitions"][0] for line in result.lines]
    assert [one["committed"] for one in shown] == [2, 5, 10]
    assert [one["lag"] for one in shown] == [8, 5, 0]


def test_the_history_is_read_backwards_in_pieces(
    on: Run, bootstrap: str, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    on("topics", "create", topic)
    for offset in (3, 5, 4):
        commit(bootstrap, group, topic, {0: offset})
    (reader,) = group_history.open_readers(Cluster(bootstrap, None, 10), [group])
    try:
        whole = reader.read_back(1, lambda _: False)
        assert [(one.group, one.topic, one.partition, one.offset) for one in whole.events] == [
            (group, topic, 0, 3),
            (group, topic, 0, 5),
            (group, topic, 0, 4),
        ]
        assert whole.since_ms == 1
        assert reader.read_on() == []
        monkeypatch.setattr(group_history, "FIRST_PIECE_RECORDS", 1)
        assert reader.read_back(1, lambda _: False) == whole
        # What is enough ends the search, and then only so much is known of the past.
        newest = reader.read_back(1, lambda commits: len(commits) == 1)
        assert newest.events == whole.events[-1:]
        assert newest.since_ms == pytest.approx(newest.events[0].timestamp_ms, abs=10_000)
        commit(bootstrap, group, topic, {0: 6})
        assert [one.offset for one in reader.read_on()] == [6]
    finally:
        reader.close()


def test_a_budget_that_is_used_up_leaves_what_was_read(
    on: Run, bootstrap: str, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    on("topics", "create", topic)
    produce(bootstrap, topic, 0, 10)
    commit(bootstrap, group, topic, {0: 4})
    monkeypatch.setattr(group_history, "READ_BYTES_MAX", -1)
    one = partitions(described(on, group))[0]
    assert (one["verdict"], one["reason"]) == ("OK", "no commit was seen, so there is no verdict")
