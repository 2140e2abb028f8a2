"""Metrics of client quotas, computed at each scrape. Client ids come from outside, so only some are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import nlargest
from typing import Final

from penstock.broker.quotas.client_quotas import ClientQuotas
from penstock.metadata.quotas import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from penstock.telemetry.samples import Sample, counter, gauge

SHOWN_MAX: Final = 200
"""The users and client ids with metrics of their own: those that were throttled longest."""

RATES: Final = {
    PRODUCER_BYTE_RATE: ("kafka_server_produce_byte_rate", "Bytes per second produced by clients with a quota"),
    CONSUMER_BYTE_RATE: ("kafka_server_fetch_byte_rate", "Bytes per second fetched by clients with a quota"),
    REQUEST_PERCENTAGE: ("kafka_server_request_request_time", "Percent of the loop used by clients with a quota"),
    CONTROLLER_MUTATION_RATE: (
        "kafka_server_controllermutation_mutation_rate",
        "Partitions per second created and deleted by clients with a quota",
    ),
}


class QuotaGauges:
    def __init__(self, quotas: ClientQuotas, now_ms: Callable[[], float], throttled: Callable[[], int]) -> None:
        """`throttled`: the number of connections that are held now."""
        self._quotas = quotas
        self._now_ms = now_ms
        self._throttled = throttled

    def samples(self) -> Iterable[Sample]:
        quotas, now_ms = self._quotas, self._now_ms()
        yield gauge("penstock_throttled_connections", "Connections held because of a quota", self._throttled())
        yield gauge("penstock_quota_meters", "Users and client ids counted against quotas", quotas.meter_count)
        exempt = "Time spent on followers, which have no quota"
        yield counter("penstock_quota_exempt_seconds_total", exempt, quotas.exempt_ms / 1000)
        shown = nlargest(SHOWN_MAX, quotas.meters(), key=lambda meter: meter.throttle_ms)
        shown.sort(key=lambda meter: (meter.quota, meter.user, meter.client_id))
        for meter in shown:
            name, text = RATES[meter.quota]
            who = (("user", meter.user), ("client_id", meter.client_id))
            yield gauge(name, text, meter.rate.per_second(now_ms), who)
        for meter in shown:
            labels = (("quota", meter.quota), ("user", meter.user), ("client_id", meter.client_id))
            yield gauge("penstock_quota_limit", "The limit in force, per second or in percent", meter.limit, labels)
        for meter in shown:
            labels = (("quota", meter.quota), ("user", meter.user), ("client_id", meter.client_id))
            told = "Throttle time that clients were told"
            yield counter("penstock_quota_throttle_seconds_total", told, meter.throttle_ms / 1000, labels)
        for meter in shown:
            labels = (("quota", meter.quota), ("user", meter.user), ("client_id", meter.client_id))
            yield counter("penstock_quota_throttled_total", "Answers with a throttle time", meter.throttled, labels)
