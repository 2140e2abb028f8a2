"""When the active controller last heard from each broker. Soft state: a new controller starts empty."""

from __future__ import annotations


class BrokerSessions:
    """The caller passes the times; it should exclude times when the process was suspended (`SteadyClock`)."""

    def __init__(self, timeout_ms: float) -> None:
        self.timeout_ms = timeout_ms
        self._heard_ms: dict[int, float] = {}

    def heard(self, broker_id: int, now_ms: float) -> None:
        """Records a registration or heartbeat."""
        self._heard_ms[broker_id] = now_ms

    def forget(self, broker_id: int) -> None:
        """Drops the session of a broker that was fenced or unregistered."""
        self._heard_ms.pop(broker_id, None)

    def is_alive(self, broker_id: int, now_ms: float) -> bool:
        heard_ms = self._heard_ms.get(broker_id)
        return heard_ms is not None and now_ms - heard_ms < self.timeout_ms

    def last_heard_ms(self, broker_id: int) -> float | None:
        return self._heard_ms.get(broker_id)

    def expired(self, now_ms: float, resumed_ms: float = -float("inf")) -> list[int]:
        """Brokers silent for too long. Silence before `resumed_ms` does not count: the controller was not listening."""
        return sorted(
            broker_id
            for broker_id, heard_ms in self._heard_ms.items()
            if now_ms - max(heard_ms, resumed_ms) >= self.timeout_ms
        )

    def next_expiry_ms(self) -> float:
        """When the next session expires if nothing is heard until then."""
        return min(self._heard_ms.values(), default=float("inf")) + self.timeout_ms
