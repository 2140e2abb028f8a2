"""Lines for whoever watches a node: what usually passes is no warning until it persists."""

from __future__ import annotations

import io
import json

from penstock.runtime.eventlog import RECURRENCES_MAX, Recurrences, StreamEventLog


class Log:
    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000
        self._stream = io.StringIO()
        self.events = StreamEventLog(lambda: self.now_ms, json_lines=True, stream=self._stream)

    def levels(self) -> list[str]:
        return [json.loads(line)["level"] for line in self._stream.getvalue().splitlines()]

    def repeat(self, seconds: int, subject: str = "t-0") -> None:
        for _ in range(seconds):
            self.events.recurring("replica not fetched", subject, partition=subject)
            self.now_ms += 1_000


def test_what_passes_within_ten_seconds_is_no_warning() -> None:
    log = Log()
    log.repeat(10)
    assert log.levels() == ["INFO"] * 10


def test_what_persists_is_a_warning() -> None:
    log = Log()
    log.repeat(12)
    assert log.levels() == ["INFO"] * 10 + ["WARN"] * 2


def test_what_comes_again_much_later_is_new() -> None:
    log = Log()
    log.repeat(12)
    log.now_ms += 60_000
    log.repeat(1)
    assert log.levels()[-1] == "INFO"


def test_one_subject_after_another_is_no_persistence() -> None:
    log = Log()
    for number in range(30):
        log.repeat(1, f"t-{number}")
    assert set(log.levels()) == {"INFO"}


def test_subjects_are_forgotten_oldest_first() -> None:
    recurrences = Recurrences()
    for number in range(RECURRENCES_MAX + 5):
        recurrences.persists("event", number, number)
    assert len(recurrences._times) == RECURRENCES_MAX


def test_a_line_that_a_peer_chose_cannot_steer_the_terminal() -> None:
    stream = io.StringIO()
    StreamEventLog(lambda: 0, stream=stream).warning("closed", reason="\x1b[2J\r", client="a\u202eb")
    assert stream.getvalue().rstrip("\n").isprintable()
