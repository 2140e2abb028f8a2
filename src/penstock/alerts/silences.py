"""Silences: alerts that somebody knows about already. Pure.

A silence names rules and resources by patterns, ends by itself, and says who made it and why. A silenced alert is still
followed and listed; it is not sent. When the silence ends and the alert still fires, it is sent then.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from penstock.alerts.engine import Alert

DURATION_MS_MAX: Final = 90 * 86_400_000
"""A silence for ever is a rule that nobody wants: change the rule's threshold instead."""
PATTERN_CHARS_MAX: Final = 300


class Silence(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    rule: str
    """A pattern for rules, such as `ConsumerLag*`."""
    name: str = "*"
    """A pattern for resources: a group, a broker's id."""
    until_ms: int
    comment: str = ""

    def covers(self, alert: Alert, now_ms: int) -> bool:
        return now_ms < self.until_ms and fnmatchcase(alert.rule, self.rule) and fnmatchcase(alert.name, self.name)


def silence_of(alert: Alert, silences: Iterable[Silence], now_ms: int) -> Silence | None:
    """The silence that covers an alert."""
    return next((one for one in silences if one.covers(alert, now_ms)), None)
