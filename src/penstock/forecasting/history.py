"""How much history a series has, and what that allows."""

from __future__ import annotations

from typing import Final

import msgspec

from penstock.forecasting.cleaning import Findings
from penstock.forecasting.daily import WEEK_DAYS, Days

DAYS_MIN: Final = 3
WEEKLY_DAYS_MIN: Final = 2 * WEEK_DAYS
YEAR_DAYS: Final = 365
YEARLY_DAYS_MIN: Final = 2 * YEAR_DAYS
GAPS_SHARE_MAX: Final = 0.5
ADVISED_DAYS: Final = 365


class History(msgspec.Struct, frozen=True):
    """What can be forecast from a series, in figures and in words."""

    days: int
    filled_days: int
    seasons: tuple[int, ...]
    """Lengths in days that a model may use."""
    horizon_days_max: int
    """Further ahead than it looks back, nothing can be said."""
    text: str

    @property
    def is_enough(self) -> bool:
        return self.horizon_days_max > 0


def assess(days: Days, findings: Findings) -> History:
    count = len(days.values)
    gaps = f"; {days.filled} days had too few samples and were filled" if days.filled else ""
    if count < DAYS_MIN:
        return History(count, days.filled, (), 0, f"{count} days of history: a forecast needs {DAYS_MIN} at least")
    if days.filled > GAPS_SHARE_MAX * count:
        return History(
            count, days.filled, (), 0, f"{days.filled} of {count} days have too few samples: no forecast is possible"
        )
    if count < WEEKLY_DAYS_MIN:
        text = f"{count} days: level and trend only, no weekly season (that needs {WEEKLY_DAYS_MIN} days)"
        return History(count, days.filled, (), count, text + gaps)
    if count < YEARLY_DAYS_MIN:
        text = f"{count} days: trend, daily and weekly season; no yearly season (that needs two years, or events)"
        if count < ADVISED_DAYS:
            text += f"; a year of history is advised for growth (there are {count} days)"
        return History(count, days.filled, (WEEK_DAYS,), count, text + gaps)
    text = f"{count} days: trend, daily, weekly and yearly season"
    return History(count, days.filled, (WEEK_DAYS, YEAR_DAYS), count, text + gaps)
