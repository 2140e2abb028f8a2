"""How long nothing was acknowledged. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Pauses:
    """The longest time between two acknowledgements of one partition, since it was last asked."""

    partitions: int
    _last_s: list[float | None] = field(init=False)
    _longest_s: float = 0.0

    def __post_init__(self) -> None:
        self._last_s = [None] * self.partitions

    def acknowledged(self, partition: int, now_s: float) -> None:
        before_s = self._last_s[partition]
        if before_s is not None:
            self._longest_s = max(self._longest_s, now_s - before_s)
        self._last_s[partition] = now_s

    def running_s(self, now_s: float) -> float:
        """How long the partition waits that has waited longest."""
        return max((now_s - last_s for last_s in self._last_s if last_s is not None), default=0.0)

    def take_s(self, now_s: float) -> float:
        """The longest since the last call, those included that have not ended; counting begins anew."""
        longest_s, self._longest_s = max(self._longest_s, self.running_s(now_s)), 0.0
        self._last_s = [None if last_s is None else now_s for last_s in self._last_s]
        return longest_s
