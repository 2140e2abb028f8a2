"""From an alert to somebody: messages, silences, webhooks that are down, and the topic."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from alerts.samples import NOW_MS, sample
from penstock import client
from penstock.alerts.board import Board, silence_entry
from penstock.alerts.catalogue import Severity
from penstock.alerts.engine import Alert, Engine, State
from penstock.alerts.following import AlertFollower
from penstock.alerts.notices import ALERTS_PER_NOTICE_MAX, Notice, notices
from penstock.alerts.silences import Silence, silence_of
from penstock.alerts.sinks import QUEUE_MAX, Webhook, WebhookRefused
from penstock.monitor.observed import Observed
from penstock.testing import Cluster
from support.waiting import wait_until


def alert(name: str = "g", state: State = State.FIRING) -> Alert:
    return Alert(
        rule="ConsumerLag", severity=Severity.WARNING, kind="group", name=name, state=state, since_ms=NOW_MS,
        fired_ms=NOW_MS, value=20_000, bound=10_000, unit="records", text=f"group {name} has 20,000 unread records",
        meaning="It is slow.", command=f"penstock groups describe {name}",
    )  # fmt: skip


def lagging(follower: AlertFollower, seconds: int, value: float = 20_000, start_s: int = 0) -> None:
    for number in range(start_s, start_s + seconds + 1, 10):
        follower.take(Observed(), [sample("lag_records", value)], NOW_MS + number * 1000)


# ---- messages


def test_alerts_of_one_rule_are_one_message() -> None:
    found = list(notices("c", [alert(str(number)) for number in range(150)], []))
    assert len(found) == 1
    assert (len(found[0].alerts), found[0].truncated) == (ALERTS_PER_NOTICE_MAX, 50)
    assert "(and 149 more)" in found[0].line()
    assert found[0].line().endswith("Next: penstock groups describe 0")


def test_a_message_is_what_alertmanagers_receivers_expect() -> None:
    (notice,) = notices("c", [alert()], [])
    body = json.loads(notice.webhook())
    assert body["version"] == "4"
    assert body["status"] == "firing"
    (one,) = body["alerts"]
    assert one["labels"] == {
        "alertname": "ConsumerLag",
        "severity": "warning",
        "cluster": "c",
        "kind": "group",
        "name": "g",
    }
    assert one["annotations"]["value"] == "20000 records"
    assert one["annotations"]["command"] == "penstock groups describe g"
    assert one["startsAt"].endswith("Z")
    assert one["endsAt"] == "0001-01-01T00:00:00Z"


# ---- silences


def test_a_silence_covers_by_pattern_until_it_ends() -> None:
    silence = Silence(id="1", rule="ConsumerLag*", name="g*", until_ms=NOW_MS + 1_000)
    assert silence_of(alert(), [silence], NOW_MS) is silence
    assert silence_of(alert("other"), [silence], NOW_MS) is None
    assert silence_of(alert(), [silence], NOW_MS + 1_000) is None


class FakeBoard:
    """A board in memory."""

    def __init__(self, *silences: Silence) -> None:
        self.silences = {one.id: one for one in silences}
        self.written: dict[str, bytes | None] = {}

    def read(self) -> None:
        pass

    def firing(self) -> list[Alert]:
        return []

    def write(self, changes: dict[str, bytes | None], time_ms: int) -> None:
        self.written |= changes


def follower(told: list[Notice], *silences: Silence) -> AlertFollower:
    board = FakeBoard(*silences)
    return AlertFollower(board, tell=told.append, say=print)  # type: ignore[arg-type]


def test_a_silenced_alert_is_told_when_the_silence_ends() -> None:
    told: list[Notice] = []
    quiet = follower(told, Silence(id="1", rule="ConsumerLag", until_ms=NOW_MS + 400_000))
    lagging(quiet, 390)
    assert told == []
    lagging(quiet, 30, start_s=400)
    assert [notice.status for notice in told] == ["firing"]


def test_nobody_hears_that_a_silenced_alert_was_resolved() -> None:
    told: list[Notice] = []
    quiet = follower(told, Silence(id="1", rule="ConsumerLag", until_ms=NOW_MS + 10_000_000))
    lagging(quiet, 400)
    lagging(quiet, 400, value=0, start_s=410)
    assert told == []


def test_firing_and_resolved_are_told_and_written() -> None:
    told: list[Notice] = []
    board = FakeBoard()
    loud = AlertFollower(board, tell=told.append, say=print)  # type: ignore[arg-type]
    lagging(loud, 310)
    assert board.written["alert/ConsumerLag/group/g"] is not None
    lagging(loud, 100, value=0, start_s=320)
    assert [notice.status for notice in told] == ["firing", "resolved"]
    assert board.written["alert/ConsumerLag/group/g"] is None


# ---- webhooks


class Receiver(BaseHTTPRequestHandler):
    answers: list[int] = []  # noqa: RUF012
    bodies: list[bytes] = []  # noqa: RUF012

    def do_POST(self) -> None:
        self.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(self.answers.pop(0) if self.answers else 200)
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[str]:
    Receiver.answers, Receiver.bodies = [], []
    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/hook?a=b"
        server.shutdown()
        thread.join()


def test_a_webhook_that_fails_is_tried_again(receiver: str) -> None:
    Receiver.answers = [500, 503]
    hook = Webhook(receiver, print, first_pause_s=0.01)
    hook.put(next(notices("c", [alert()], [])))
    wait_until(lambda: hook.sent == 1)
    hook.close()
    assert len(Receiver.bodies) == 3
    assert json.loads(Receiver.bodies[-1])["commonLabels"]["alertname"] == "ConsumerLag"


def test_a_webhook_that_refuses_is_not_asked_again(receiver: str) -> None:
    Receiver.answers = [400]
    said: list[str] = []
    hook = Webhook(receiver, said.append, first_pause_s=0.01)
    hook.put(next(notices("c", [alert()], [])))
    wait_until(lambda: hook.given_up == 1)
    hook.close()
    assert "it answered 400" in said[0]
    assert len(Receiver.bodies) == 1


def test_a_webhook_that_is_down_never_blocks_and_is_bounded() -> None:
    hook = Webhook("http://127.0.0.1:1/", lambda text: None, first_pause_s=60)
    notice = next(notices("c", [alert()], []))
    began_s = time.monotonic()
    for _ in range(QUEUE_MAX + 50):
        hook.put(notice)
    hook.close(timeout_s=0.1)
    assert time.monotonic() - began_s < 5
    assert hook.dropped >= 40


@pytest.mark.parametrize("url", ["ftp://host/", "nonsense", "http://", "http:///path"])
def test_an_address_that_makes_no_sense_is_refused(url: str) -> None:
    with pytest.raises(WebhookRefused):
        Webhook(url, print)


# ---- the topic


def test_alerts_and_silences_survive_in_the_topic() -> None:
    with Cluster(brokers=1) as running:
        settings = client.ClientSettings.from_properties({"bootstrap.servers": running.bootstrap_servers})
        with client.Cluster(settings) as cluster:
            board = Board(cluster)
            board.read()
            silence = Silence(id="1", rule="X", until_ms=NOW_MS)
            told: list[Notice] = []
            writing = AlertFollower(board, tell=told.append, say=pytest.fail)
            lagging(writing, 310)
            Board(cluster).write(dict([silence_entry(silence)]), NOW_MS)
            fresh = Board(cluster)
            fresh.read()
            assert [one.rule for one in fresh.firing()] == ["ConsumerLag"]
            assert fresh.silences == {"1": silence}
            engine = Engine()
            engine.resume(fresh.firing())
            assert [one.name for one in engine.firing()] == ["g"]
            lagging(writing, 100, value=0, start_s=320)
            fresh.read()
            assert fresh.firing() == []
