"""Time in the shop: it runs faster than ours, and trade follows the hour and the weekday."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

DAY_S: Final = 86_400
HOUR_S: Final = 3_600
HOUR_MS: Final = HOUR_S * 1000

OPENING: Final = datetime(2026, 1, 5, 6, 0, tzinfo=UTC)
"""When the shop's time begins, a Monday: always the same, so that a seed gives the same events on every day."""

DAY_LENGTH_S: Final = 60.0
"""How long a day in the shop takes by our clocks."""
DAY_LENGTH_MIN_S: Final = 20.0

_WEEKDAYS: Final = (0.90, 0.88, 0.92, 0.95, 1.10, 1.20, 1.15)
# Hour of the peak, its width in hours, its height above the quiet of the night.
_PEAKS: Final = ((9.0, 2.0, 0.5), (12.5, 1.5, 0.8), (20.5, 2.5, 1.6))
_NIGHT: Final = 0.12


@dataclass(frozen=True, slots=True)
class ShopClock:
    """Seconds since the demo began → time in the shop."""

    day_length_s: float = DAY_LENGTH_S

    @classmethod
    def for_run(cls, seconds: float | None) -> ShopClock:
        """A short run has shorter days, so that it sees a whole one."""
        if seconds is None:
            return cls()
        return cls(min(DAY_LENGTH_S, max(DAY_LENGTH_MIN_S, seconds)))

    @property
    def speed(self) -> float:
        """Seconds in the shop per second here."""
        return DAY_S / self.day_length_s

    def shop_s(self, elapsed_s: float) -> float:
        """Seconds since the shop's opening."""
        return elapsed_s * self.speed

    def elapsed_s(self, shop_s: float) -> float:
        return shop_s / self.speed

    def at(self, elapsed_s: float) -> datetime:
        return datetime.fromtimestamp(epoch_ms(self.shop_s(elapsed_s)) / 1000, UTC)


def epoch_ms(shop_s: float) -> int:
    """Seconds since the opening as a timestamp."""
    return round((OPENING.timestamp() + shop_s) * 1000)


def traffic(shop_s: float) -> float:
    """How busy the shop is, 1.0 being the average of a week."""
    since_monday_s = shop_s + OPENING.hour * HOUR_S
    return _shape(since_monday_s) / _MEAN


def _shape(since_monday_s: float) -> float:
    weekday = int(since_monday_s // DAY_S) % 7
    hour = since_monday_s % DAY_S / HOUR_S
    height = _NIGHT
    for peak, width, extra in _PEAKS:
        # A peak in the evening reaches into the next night, and that of the day before into this one.
        away = min(abs(hour - peak), 24 - abs(hour - peak))
        height += extra * math.exp(-((away / width) ** 2) / 2)
    return height * _WEEKDAYS[weekday]


_MEAN: Final = sum(_shape(minute * 60) for minute in range(7 * 24 * 60)) / (7 * 24 * 60)
