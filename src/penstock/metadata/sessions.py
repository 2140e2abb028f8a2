"""Which brokers the active controller has heard from lately. Soft state: a new controller begins anew."""

from __future__ import annotations


class BrokerSessions:
    """Times are the caller's; a process that stood still should leave that time out (`SteadyClock`)."""

    def __init__(self, timeout_ms: float) -> None:
        self.timeout_ms = timeout_ms
        self._heard_ms: dict[int, float] = {}

    def heard(self, broker_id: int, now_ms: float) -> None:
        """It registered, or sent a heartbeat."""
        self._heard_ms[broker_id] = now_ms

    def forget(self, broker_id: int) -> None:
        """It was fenced or unregistered: no session is left to expire."""
        self._heard_ms.pop(broker_id, None)

    def is_alive(self, broker_id: int, now_ms: float) -> bool:
        heard_ms = self._heard_ms.get(broker_id)
        return heard_ms is not None and now_ms - heard_ms < self.timeout_ms

    def last_heard_ms(self, broker_id: int) -> float | None:
        return self._heard_ms.get(broker_id)

    def expired(self, now_ms: float, resumed_ms: float = -float("inf")) -> list[int]:
        """Brokers that were silent for too long. Silence before `resumed_ms` does not count: nobody listened then."""
        return sorted(
            broker_id
            for broker_id, heard_ms in self._heard_ms.items()
            if now_ms - max(heard_ms, resumed_ms) >= self.timeout_ms
        )

    def next_expiry_ms(self) -> float:
        """When the next session may expire, unless something is heard until then."""
        return min(self._heard_ms.values(), default=float("inf")) + self.timeout_ms
