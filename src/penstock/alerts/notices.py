"""Messages about alerts, in the format that Alertmanager sends to webhooks (version 4), so that its receivers work.

All alerts of one rule that fire, or are resolved, in one round are one message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec

from penstock.alerts.engine import Alert, State, by_rule

ALERTS_PER_NOTICE_MAX: Final = 100
"""Further ones are counted in `truncatedAlerts`."""
NEVER: Final = "0001-01-01T00:00:00Z"
"""How Alertmanager writes a time that has not come."""


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """One message."""

    rule: str
    status: str
    """`firing` or `resolved`."""
    cluster: str
    alerts: tuple[Alert, ...]
    truncated: int = 0

    def line(self) -> str:
        """For the log: what is wrong, and the next command."""
        first = self.alerts[0]
        more = len(self.alerts) + self.truncated - 1
        others = f" (and {more:,} more)" if more else ""
        if self.status == "resolved":
            return f"resolved: {self.rule}: {first.text}{others}; {first.reason}"
        return f"{first.severity}: {self.rule}: {first.text}{others}. {first.meaning} Next: {first.command}"

    def webhook(self) -> bytes:
        common = {"alertname": self.rule, "severity": str(self.alerts[0].severity), "cluster": self.cluster}
        return msgspec.json.encode(
            {
                "version": "4",
                "groupKey": f'{{}}:{{alertname="{self.rule}"}}',
                "truncatedAlerts": self.truncated,
                "status": self.status,
                "receiver": "penstock",
                "groupLabels": {"alertname": self.rule},
                "commonLabels": common,
                "commonAnnotations": {"description": self.alerts[0].meaning},
                "externalURL": "",
                "alerts": [self._one(alert, common) for alert in self.alerts],
            }
        )

    def _one(self, alert: Alert, common: Mapping[str, str]) -> dict[str, object]:
        return {
            "status": self.status,
            "labels": {**common, "kind": alert.kind, "name": alert.name},
            "annotations": {
                "summary": alert.text,
                "description": alert.meaning,
                "value": f"{alert.value:g} {alert.unit}",
                "threshold": f"{alert.bound:g} {alert.unit}",
                "command": alert.command,
                "reason": alert.reason,
            },
            "startsAt": timestamp(alert.since_ms),
            "endsAt": timestamp(alert.ended_ms) if alert.ended_ms else NEVER,
            "generatorURL": "",
            "fingerprint": alert.key,
        }


def notices(cluster: str, fired: Iterable[Alert], resolved: Iterable[Alert]) -> Iterator[Notice]:
    """One message per rule and status, the most urgent first."""
    order = ("critical", "warning", "info")
    groups = [(rule, str(State.FIRING), alerts) for rule, alerts in by_rule(fired).items()]
    groups += [(rule, str(State.RESOLVED), alerts) for rule, alerts in by_rule(resolved).items()]
    groups.sort(key=lambda group: order.index(group[2][0].severity))
    for rule, status, alerts in groups:
        kept = tuple(alerts[:ALERTS_PER_NOTICE_MAX])
        yield Notice(rule=rule, status=status, cluster=cluster, alerts=kept, truncated=len(alerts) - len(kept))


def timestamp(time_ms: int) -> str:
    """RFC 3339."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
