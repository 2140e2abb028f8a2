"""Growth per domain: topics whose names begin alike."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec
import numpy as np

from penstock.forecasting.cleaning import Floats
from penstock.forecasting.daily import WEEK_DAYS

_SEPARATORS = re.compile(r"[.\-_]")


class Growth(msgspec.Struct, frozen=True):
    domain: str
    series: int
    now: float
    """The mean of the last week."""
    then: float
    """The mean of the last week of the forecast."""
    per_month: float
    """Growth of the history by the month, as a share: a median, so that outliers count little."""


def domain_of(topic: str) -> str:
    """`orders` for `orders.created.v1`."""
    return _SEPARATORS.split(topic, maxsplit=1)[0] or topic


def growth(domain: str, histories: Iterable[Floats], forecasts: Iterable[Floats]) -> Growth:
    pasts, comings = list(histories), list(forecasts)
    length = max((len(one) for one in pasts), default=0)
    total = sum((np.pad(one, (length - len(one), 0)) for one in pasts), np.zeros(length))
    ahead = min((len(one) for one in comings), default=0)
    coming = sum((one[:ahead] for one in comings), np.zeros(ahead))
    now = float(total[-WEEK_DAYS:].mean()) if length else 0.0
    then = float(coming[-WEEK_DAYS:].mean()) if ahead else now
    return Growth(domain, len(pasts), now, then, monthly(total))


def monthly(values: Floats) -> float:
    """Growth by the month (30 days): the median of the slopes between months, of logarithms."""
    months = len(values) // 30
    if months < 2:
        return 0.0
    means = values[-months * 30 :].reshape(months, 30).mean(axis=1)
    usable = np.flatnonzero(means > 0)
    if len(usable) < 2:
        return 0.0
    logs = np.log(means[usable])
    slopes = [
        (logs[j] - logs[i]) / (usable[j] - usable[i]) for i in range(len(usable)) for j in range(i + 1, len(usable))
    ]
    return float(np.expm1(np.median(slopes)))
