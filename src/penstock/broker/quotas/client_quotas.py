"""Counts the requests of clients against their quotas, and returns how long they are throttled.

What is counted, by the name of the quota:

- `producer_byte_rate`: bytes of Produce requests
- `consumer_byte_rate`: bytes of records fetched. A fetch that would exceed it is answered without records, and not
  counted. One fetch gets at most what the windows allow, so that a small quota delays a reader and never stops it.
- `request_percentage`: time of the event loop, in percent. 100 is the whole loop of one broker. A client waits at most
  one window for this at a time.
- `controller_mutation_rate`: partitions created and deleted, at the active controller (KIP-599)

Followers and this node's own requests are exempt.

Memory: a meter exists only for those who have a quota. Client ids come from outside, so meters are limited to
`METERS_MAX`. When that is reached, meters whose windows are empty are dropped; that forgets nothing. If none is empty,
further clients share one meter per quota, with the limit of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import blake2b
from math import ceil
from typing import Final

from penstock.broker.net.access import ANONYMOUS, Client
from penstock.broker.net.request import Request
from penstock.broker.quotas.rates import TokenBucket, WindowedRate
from penstock.broker.quotas.table import NO_QUOTAS, Limit, QuotaTable
from penstock.metadata.quotas import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from penstock.wire.apis import ApiKey, QuotaClass
from penstock.wire.errors import ErrorCode, KafkaError

METERS_MAX: Final = 10_000
CLEANING_INTERVAL_MS: Final = 1_000
NAME_LENGTH_MAX: Final = 128
"""Longer users and client ids are kept as a digest."""
THROTTLE_MS_MAX: Final = 3_600_000
"""The longest throttle time. Kafka sets no limit; but a connection that is not read cannot be found closed."""
OTHERS: Final = "<others>"

STRICT_FROM: Final = {ApiKey.CREATE_TOPICS: 6, ApiKey.DELETE_TOPICS: 5, ApiKey.CREATE_PARTITIONS: 3}
"""From these versions on a client knows THROTTLING_QUOTA_EXCEEDED (KIP-599). Older ones are served and throttled."""


class Meter:
    """What one user, client id or pair has used of one quota."""

    __slots__ = ("bucket", "client_id", "limit", "quota", "rate", "throttle_ms", "throttled", "user")

    def __init__(self, quota: str, limit: Limit, windows: int, window_ms: float, now_ms: float) -> None:
        self.quota = quota
        self.user = limit.user
        self.client_id = limit.client_id
        self.limit = limit.value
        self.rate = WindowedRate(windows, window_ms)
        is_bucket = quota == CONTROLLER_MUTATION_RATE
        self.bucket = TokenBucket(windows, window_ms, limit.value, now_ms) if is_bucket else None
        self.throttled = 0
        """Answers that told the client to wait."""
        self.throttle_ms = 0.0

    def is_idle(self, now_ms: float) -> bool:
        if self.bucket is not None and not self.bucket.is_idle(self.limit, now_ms):
            return False
        return self.rate.is_idle(now_ms)


class Meters:
    """The meters of one user and client id. None where there is no limit."""

    __slots__ = ("client_id", "fetch", "generation", "mutation", "produce", "request")

    def __init__(self, client_id: str, generation: int) -> None:
        self.client_id = client_id
        self.generation = generation
        self.produce: Meter | None = None
        self.fetch: Meter | None = None
        self.request: Meter | None = None
        self.mutation: Meter | None = None


class ClientQuotas:
    """Implements `penstock.broker.gate.Quotas`."""

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self._now_ms = now_ms
        self._table = NO_QUOTAS
        self._windows = 11
        self._window_ms = 1_000.0
        self._mutation_windows = 11
        self._mutation_window_ms = 1_000.0
        self._meters: dict[tuple[str, str, str], Meter] = {}
        self._generation = 0
        self._cleaned_ms = float("-inf")
        self.exempt_ms = 0.0
        """Time of the event loop that was spent on followers."""

    def configure(self, windows: int, window_ms: float, mutation_windows: int, mutation_window_ms: float) -> None:
        """New windows apply to new meters."""
        self._windows, self._window_ms = windows, window_ms
        self._mutation_windows, self._mutation_window_ms = mutation_windows, mutation_window_ms

    def use(self, table: QuotaTable) -> None:
        """Other limits are in force from now on. What clients have used so far still counts."""
        self._table = table
        self._generation += 1
        self._meters = {key: meter for key, meter in self._meters.items() if table.has(meter.quota)}

    # ---- the gate

    def enter(self, request: Request) -> None:
        """Nothing is refused as a whole: a mutation quota refuses the topics that exceed it (`mutation_charge`)."""

    def charge(self, request: Request, data_bytes: int) -> int:
        if is_follower(request):
            return 0
        meters = self._of(request)
        now_ms = self._now_ms()
        throttle_ms, request.owed_ms = request.owed_ms, 0
        kind = request.row.quota
        if kind is QuotaClass.PRODUCE and meters.produce is not None:
            meters.produce.rate.record(data_bytes, now_ms)
            throttle_ms = max(throttle_ms, self._throttle(meters.produce, now_ms))
        elif kind is QuotaClass.FETCH and meters.fetch is not None and data_bytes:
            meters.fetch.rate.record(data_bytes, now_ms)
            fetch_ms = self._throttle(meters.fetch, now_ms)
            if fetch_ms:
                meters.fetch.rate.record(-data_bytes, now_ms)  # the answer leaves without records
                throttle_ms = max(throttle_ms, fetch_ms)
        if meters.request is not None:
            throttle_ms = max(throttle_ms, self._throttle(meters.request, now_ms, meters.request.rate.window_ms))
        return throttle_ms

    def took(self, request: Request, busy_ms: float) -> None:
        if is_follower(request):
            self.exempt_ms += busy_ms
            return
        # The client id of its last answer: it costs as much to read it again as all the rest.
        known = request.client.meters
        if not isinstance(known, Meters) or known.generation != self._generation:
            known = self._of(request)
        meter = known.request
        if meter is not None:
            meter.rate.record(busy_ms / 10, self._now_ms())  # a second of a second is 100 percent

    def fetch_bytes_max(self, request: Request) -> int | None:
        """The most bytes that one fetch may return; None if there is no limit."""
        meter = self._of(request).fetch
        if meter is None:
            return None
        rate = meter.rate
        return int(meter.limit * max(1, rate.count - 1) * rate.window_ms / 1000)

    def mutation_charge(self, request: Request) -> Callable[[int], None] | None:
        """Charges the partitions that a request creates or deletes; None if there is no limit."""
        meter = self._of(request).mutation
        if meter is None:
            return None
        is_strict = request.version >= STRICT_FROM.get(request.row.key, 0)

        def charge(partitions: int) -> None:
            assert meter.bucket is not None
            now_ms = self._now_ms()
            if is_strict and (debt_ms := meter.bucket.debt_ms(meter.limit, now_ms)):
                request.owed_ms = bounded(debt_ms)
                self._count(meter, debt_ms)
                raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
            meter.rate.record(partitions, now_ms)
            meter.bucket.take(partitions, meter.limit, now_ms)
            if not is_strict and (debt_ms := meter.bucket.debt_ms(meter.limit, now_ms)):
                request.owed_ms = bounded(debt_ms)
                self._count(meter, debt_ms)

        return charge

    # ---- meters

    def meters(self) -> Iterator[Meter]:
        """All of them, for metrics."""
        yield from self._meters.values()

    @property
    def meter_count(self) -> int:
        return len(self._meters)

    def _throttle(self, meter: Meter, now_ms: float, most_ms: float = THROTTLE_MS_MAX) -> int:
        throttle_ms = meter.rate.throttle_ms(meter.limit, now_ms)
        if not throttle_ms:
            return 0
        throttle_ms = min(throttle_ms, most_ms)
        self._count(meter, throttle_ms)
        return bounded(throttle_ms)

    def _count(self, meter: Meter, throttle_ms: float) -> None:
        meter.throttled += 1
        meter.throttle_ms += throttle_ms

    def _of(self, request: Request) -> Meters:
        client = request.client
        client_id = request.client_id
        known = client.meters
        if isinstance(known, Meters) and known.generation == self._generation and known.client_id == client_id:
            return known
        found = client.meters = self._found(client, client_id)
        return found

    def _found(self, client: Client, client_id: str) -> Meters:
        user = (client.principal or ANONYMOUS).name
        while True:
            meters = Meters(client_id, self._generation)
            meters.produce = self._meter(PRODUCER_BYTE_RATE, user, client_id)
            meters.fetch = self._meter(CONSUMER_BYTE_RATE, user, client_id)
            meters.request = self._meter(REQUEST_PERCENTAGE, user, client_id)
            meters.mutation = self._meter(CONTROLLER_MUTATION_RATE, user, client_id)
            if meters.generation == self._generation:
                return meters
            # One of them made room by cleaning, which may have dropped another.

    def _meter(self, quota: str, user: str, client_id: str) -> Meter | None:
        limit = self._table.limit(quota, user, client_id)
        if limit is None:
            return None
        limit = Limit(limit.value, short(limit.user), short(limit.client_id))
        key = (quota, limit.user, limit.client_id)
        meter = self._meters.get(key)
        if meter is not None:
            meter.limit = limit.value
            return meter
        if len(self._meters) >= METERS_MAX:
            self._clean()
            if len(self._meters) >= METERS_MAX:
                key = (quota, OTHERS, OTHERS)
                meter = self._meters.get(key)
                if meter is not None:
                    return meter
                limit = Limit(limit.value, OTHERS, OTHERS)
        windows, window_ms = self._windows, self._window_ms
        if quota == CONTROLLER_MUTATION_RATE:
            windows, window_ms = self._mutation_windows, self._mutation_window_ms
        meter = self._meters[key] = Meter(quota, limit, windows, window_ms, self._now_ms())
        return meter

    def _clean(self) -> None:
        """Drop the meters that hold nothing; connections look theirs up again."""
        now_ms = self._now_ms()
        if now_ms - self._cleaned_ms < CLEANING_INTERVAL_MS:
            return
        self._cleaned_ms = now_ms
        before = len(self._meters)
        self._meters = {key: meter for key, meter in self._meters.items() if not meter.is_idle(now_ms)}
        if len(self._meters) < before:
            self._generation += 1


def is_follower(request: Request) -> bool:
    connection = request.connection
    return connection is not None and connection.weight > 1 and request.row.quota is QuotaClass.FETCH


def bounded(throttle_ms: float) -> int:
    return min(ceil(throttle_ms), THROTTLE_MS_MAX)


def short(name: str) -> str:
    if len(name) <= NAME_LENGTH_MAX:
        return name
    return f"{name[:32]}…{blake2b(name.encode('utf-8', 'replace'), digest_size=16).hexdigest()}"
