"""Alerts as a part of `penstock monitor`: looks at every round, tells what changed, and serves what fires."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final

from penstock.alerts.board import Board, alert_entry
from penstock.alerts.catalogue import RULES, Severity
from penstock.alerts.engine import Alert, Engine, Round
from penstock.alerts.notices import Notice, notices
from penstock.alerts.silences import silence_of
from penstock.client import ClientError
from penstock.monitor.observed import Observed
from penstock.monitor.samples import MetricSample
from penstock.planning.catalogue import Catalogue
from penstock.telemetry.samples import Sample, counter, gauge

UNWRITTEN_MAX: Final = 20_000
SILENCES_EVERY_MS: Final = 30_000


class AlertFollower:
    """Follows the rounds of a monitor (`penstock.monitor.running.Follower`)."""

    def __init__(
        self,
        board: Board | None,
        *,
        catalogue: Catalogue | None = None,
        tell: Callable[[Notice], object],
        also: Sequence[Callable[[Notice], object]] = (),
        say: Callable[[str], object],
    ) -> None:
        self.engine = Engine(catalogue)
        self._board = board
        self._tell = tell
        self._also = also
        self._say = say
        self._unwritten: dict[str, bytes | None] = {}
        self._held: dict[str, Alert] = {}
        """Alerts that fired while they were silenced."""
        self._resumed = board is None
        self._read_ms = 0
        self._told = 0

    def take(self, observed: Observed, taken: Sequence[MetricSample], time_ms: int) -> Iterable[Sample]:
        if taken:
            self._follow_board(time_ms)
            changes = self.engine.take(taken, time_ms)
        else:
            reason = observed.problems[-1] if observed.problems else ""
            changes = self.engine.unreachable(reason, time_ms)
        self._tell_changes(observed.shape.cluster_id, changes, time_ms)
        if taken:
            self._write(time_ms)
        return self._series()

    def _follow_board(self, time_ms: int) -> None:
        """Continues the alerts of the last monitor, once, and hears of new silences."""
        board = self._board
        if board is None or (self._resumed and time_ms - self._read_ms < SILENCES_EVERY_MS):
            return
        try:
            board.read()
        except ClientError as error:
            self._say(f"could not read silences: {error}")
            return
        self._read_ms = time_ms
        if not self._resumed:
            self._resumed = True
            self.engine.resume(board.firing())

    def _tell_changes(self, cluster: str, changes: Round, time_ms: int) -> None:
        silences = list(self._board.silences.values()) if self._board is not None else []
        fired = []
        for alert in [*self._held.values(), *changes.fired]:
            if silence_of(alert, silences, time_ms) is not None:
                self._held[alert.key] = alert
            else:
                self._held.pop(alert.key, None)
                fired.append(alert)
        # Nobody was told that an alert fired which was silenced all the time.
        resolved = [alert for alert in changes.resolved if self._held.pop(alert.key, None) is None]
        fired = [alert for alert in fired if alert.state != "resolved"]
        for notice in notices(cluster, _loud(fired), _loud(resolved)):
            self._told += 1
            self._tell(notice)
            for sink in self._also:
                sink(notice)
        for alert in (*changes.fired, *changes.resolved):
            key, value = alert_entry(alert)
            if key in self._unwritten or len(self._unwritten) < UNWRITTEN_MAX:
                self._unwritten[key] = value

    def _write(self, time_ms: int) -> None:
        if self._board is None or not self._unwritten:
            return
        with suppress(ClientError):
            self._board.write(self._unwritten, time_ms)
            self._unwritten.clear()

    def _series(self) -> list[Sample]:
        text = "1 for every alert that fires"
        found = [
            gauge(
                "penstock_alert_firing", text, 1,
                (("rule", one.rule), ("severity", str(one.severity)), ("kind", one.kind), ("name", one.name)),
            )
            for one in self.engine.firing()
        ]  # fmt: skip
        found.append(counter("penstock_alert_messages_total", "Messages about alerts that were sent", self._told))
        found.append(gauge("penstock_alert_rules", "Rules that are evaluated", len(RULES)))
        return found


def _loud(alerts: Iterable[Alert]) -> list[Alert]:
    """Alerts that only inform are listed, and nobody is told."""
    return [alert for alert in alerts if alert.severity is not Severity.INFO]
