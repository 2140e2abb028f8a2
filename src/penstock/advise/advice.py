"""All advice for a situation, the most urgent first. Pure."""

from __future__ import annotations

from penstock.advise.bottleneck import bottleneck
from penstock.advise.brokers import brokers
from penstock.advise.consumers import consumers
from penstock.advise.health import health
from penstock.advise.hot import hot
from penstock.advise.items import Item, ordered
from penstock.advise.situation import Situation
from penstock.advise.topics import topics


def advise(situation: Situation) -> list[Item]:
    """Empty for a healthy cluster, idle ones included."""
    found = [
        *health(situation), *bottleneck(situation), *consumers(situation), *hot(situation), *brokers(situation),
        *topics(situation),
    ]  # fmt: skip
    limited = {item.subject for item in found if item.code.startswith("bottleneck.")}
    # The bottleneck says it more precisely than the table of thresholds.
    return ordered([item for item in found if not (item.code.startswith("brokers.v") and item.subject in limited)])
