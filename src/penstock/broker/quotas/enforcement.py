"""Puts the quotas of the metadata image and of the properties into force on this node."""

from __future__ import annotations

from collections.abc import Callable

from penstock.broker.gate import Gate
from penstock.broker.quotas.client_quotas import ClientQuotas
from penstock.broker.quotas.table import NO_QUOTAS, QuotaTable
from penstock.config import BrokerConfig
from penstock.config.definitions import INT64_MAX
from penstock.metadata import EMPTY_IMAGE, MetadataDelta, MetadataImage
from penstock.metadata.quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE


class QuotaEnforcement:
    """One per node. While nobody has a quota the gate knows of none, and requests cost nothing more."""

    def __init__(self, gate: Gate, config: BrokerConfig, now_ms: Callable[[], float]) -> None:
        self._gate = gate
        self._image = EMPTY_IMAGE
        self.table = NO_QUOTAS
        self.quotas = ClientQuotas(now_ms)
        self.quotas.configure(
            config.quota_window_num,
            config.quota_window_size_seconds * 1000,
            config.controller_quota_window_num,
            config.controller_quota_window_size_seconds * 1000,
        )
        self.configure(config)

    def configure(self, config: BrokerConfig) -> None:
        properties = {
            PRODUCER_BYTE_RATE: config.quota_producer_default,
            CONSUMER_BYTE_RATE: config.quota_consumer_default,
        }
        self._defaults = {key: float(value) for key, value in properties.items() if value < INT64_MAX}
        self._apply()

    async def on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if image.quotas is not self._image.quotas:
            self._image = image
            self._apply()

    def connection_rate(self, host: str) -> float | None:
        """The quota of new connections per second from this address."""
        return self.table.connection_rate(host)

    def _apply(self) -> None:
        self.table = QuotaTable(self._image.quotas.values(), self._defaults)
        self.quotas.use(self.table)
        self._gate.use_quotas(None if self.table.is_empty else self.quotas)
