"""Which new connections are admitted: how many there may be, and how many may be opened per second.

Limits in number (`max.connections`, also per listener, and `max.connections.per.ip` with its overrides) and in rate
(`max.connection.creation.rate`, also per listener, and the quota `connection_creation_rate` of an address). Rates are
measured over the windows of client quotas, so a limit of 10 per second admits bursts. A refused connection is closed
at once, counted, and does not count against the rate; the others are not affected.

Memory: an address has an entry while it has connections, or a rate that is limited and not zero. Rates are kept for
`RATES_MAX` addresses; beyond that, addresses share one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.broker.quotas.rates import WindowedRate
from penstock.config import BrokerConfig
from penstock.config.listeners import INT32_MAX, ListenerLimits

RATES_MAX: Final = 10_000
OTHERS: Final = ""
NO_LIMITS: Final = ListenerLimits()


class Admission:
    def __init__(self, now_ms: Callable[[], float]) -> None:
        self._now_ms = now_ms
        self._count = 0
        self._per_host: dict[str, int] = {}
        self._per_listener: dict[str, int] = {}
        self._rate: WindowedRate | None = None
        self._listener_rates: dict[str, WindowedRate] = {}
        self._host_rates: dict[str, WindowedRate] = {}
        self.host_rate_limit: Callable[[str], float | None] = lambda host: None
        """The quota of an address."""

    def configure(self, config: BrokerConfig) -> None:
        self._config = config
        if self._rate is None:
            self._rate = WindowedRate(config.quota_window_num, config.quota_window_size_seconds * 1000)

    def refusal(self, host: str, listener: str, *, for_nodes: bool = False) -> str:
        """The limit that a new connection would exceed; empty if it is admitted, and counted from now on.

        `for_nodes`: other brokers use this listener. If clients have another one, they cannot use up the connections
        of brokers with theirs: `max.connections` does not apply to it.
        """
        config, whole = self._config, self._rate
        assert whole is not None
        most_of_host = config.max_connections_per_ip_overrides.get(host, config.max_connections_per_ip)
        of_listener = config.listener_limits.get(listener, NO_LIMITS)
        is_protected = for_nodes and len(config.listeners) > 1
        if self._count >= config.max_connections and not is_protected:
            return f"max.connections={config.max_connections}"
        if self._per_host.get(host, 0) >= most_of_host:
            return f"max.connections.per.ip={most_of_host}"
        if self._per_listener.get(listener, 0) >= of_listener.max_connections:
            return f"max.connections={of_listener.max_connections} of {listener}"
        now_ms = self._now_ms()
        rates: list[WindowedRate] = []
        if (limit := config.max_connection_creation_rate) < INT32_MAX:
            if exceeds(whole, limit, now_ms):
                return f"max.connection.creation.rate={limit}"
            rates.append(whole)
        if (limit := of_listener.max_connection_creation_rate) < INT32_MAX:
            rate = self._listener_rates.setdefault(listener, WindowedRate(whole.count, whole.window_ms))
            if exceeds(rate, limit, now_ms):
                return f"max.connection.creation.rate={limit} of {listener}"
            rates.append(rate)
        host_limit = self.host_rate_limit(host)
        if host_limit is not None:
            rate = self._host_rate(host, whole, now_ms)
            if exceeds(rate, host_limit, now_ms):
                return f"connection_creation_rate={host_limit:g} of {host}"
            rates.append(rate)
        for rate in rates:
            rate.record(1, now_ms)
        self._count += 1
        self._per_host[host] = self._per_host.get(host, 0) + 1
        self._per_listener[listener] = self._per_listener.get(listener, 0) + 1
        return ""

    def departed(self, host: str, listener: str) -> None:
        self._count -= 1
        lower(self._per_host, host)
        lower(self._per_listener, listener)

    def _host_rate(self, host: str, like: WindowedRate, now_ms: float) -> WindowedRate:
        rates = self._host_rates
        rate = rates.get(host)
        if rate is None:
            if len(rates) >= RATES_MAX:
                rates = self._host_rates = {key: rate for key, rate in rates.items() if not rate.is_idle(now_ms)}
                host = host if len(rates) < RATES_MAX else OTHERS
            rate = rates.setdefault(host, WindowedRate(like.count, like.window_ms))
        return rate


def exceeds(rate: WindowedRate, limit: float, now_ms: float) -> bool:
    """Whether one more would exceed the limit."""
    if limit <= 0:
        return True
    rate.record(1, now_ms)
    throttle_ms = rate.throttle_ms(limit, now_ms)
    rate.record(-1, now_ms)
    return throttle_ms > 0


def lower(counts: dict[str, int], key: str) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
