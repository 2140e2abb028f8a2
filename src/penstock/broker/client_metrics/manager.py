"""Which client is asked for which metrics, and whether its requests are in order.

A client is known by its instance id, which it gets with its first GetTelemetrySubscriptions. Instances are kept for
the newest `INSTANCES_MAX` clients; one that was forgotten, or asked another broker before, is looked up anew. A client
that asks or pushes before its interval is over is told so (THROTTLING_QUOTA_EXCEEDED).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from crc32c import crc32c

from penstock.broker.client_metrics.series import ClientSeries
from penstock.broker.net.request import Request
from penstock.config.client_metrics import ALL_METRICS, INTERVAL_MS_DEFAULT, Subscription, subscription
from penstock.metadata import MetadataDelta, MetadataImage, ResourceType
from penstock.telemetry.samples import Sample, counter, gauge
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.uuids import ZERO_UUID, format_uuid, is_reserved

INSTANCES_MAX: Final = 16_384
ASK_AGAIN: Final = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
"""After these errors a client asks for its subscription at once."""
NEVER: Final = float("-inf")


class Instance:
    """One client."""

    __slots__ = (
        "asked_ms",
        "generation",
        "id",
        "interval_ms",
        "is_terminating",
        "last_error",
        "metrics",
        "pushed_ms",
        "subscription_id",
    )

    def __init__(self, instance_id: bytes, generation: int, metrics: tuple[str, ...], interval_ms: int) -> None:
        self.id = instance_id
        self.generation = generation
        self.metrics = metrics
        self.interval_ms = interval_ms
        told = crc32c(f"{','.join(metrics)} {interval_ms}".encode()) ^ crc32c(instance_id)
        self.subscription_id = told - (1 << 32) if told >= 1 << 31 else told
        self.asked_ms = NEVER
        self.pushed_ms = NEVER
        self.is_terminating = False
        self.last_error = ErrorCode.NONE

    def may_ask(self, now_ms: float) -> bool:
        if self.last_error not in ASK_AGAIN and now_ms - max(self.asked_ms, self.pushed_ms) < self.interval_ms:
            return False
        self.asked_ms = now_ms
        return True

    def may_push(self, now_ms: float) -> bool:
        """The first push after it asked may come early: clients vary the time of it."""
        if self.asked_ms <= self.pushed_ms and now_ms - self.pushed_ms < self.interval_ms:
            return False
        self.pushed_ms = now_ms
        return True


class ClientMetrics:
    """One per broker."""

    def __init__(self, now_ms: Callable[[], float], new_uuid: Callable[[], bytes]) -> None:
        self._now_ms = now_ms
        self._new_uuid = new_uuid
        self._subscriptions: dict[str, Subscription] = {}
        self._generation = 0
        self._instances: dict[bytes, Instance] = {}
        self.series = ClientSeries()
        self.pushes = 0
        self.refused = 0

    @property
    def has_subscriptions(self) -> bool:
        return bool(self._subscriptions)

    async def on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        for kind, name in delta.configs_changed:
            if kind == ResourceType.CLIENT_METRICS:
                self._subscribe(name, image)

    def load(self, image: MetadataImage) -> None:
        """Take over all subscriptions of an image."""
        for kind, name in image.config_resources():
            if kind == ResourceType.CLIENT_METRICS:
                self._subscribe(name, image)

    def _subscribe(self, name: str, image: MetadataImage) -> None:
        self._generation += 1
        self._subscriptions.pop(name, None)
        settings = image.config(ResourceType.CLIENT_METRICS, name)
        if not settings:
            return
        try:
            self._subscriptions[name] = subscription(name, settings)
        except KafkaError:
            return  # of another release: the controller that took it knew better

    def asked(self, request: Request, instance_id: bytes) -> Instance:
        """The client asks for its subscription. Raises KafkaError."""
        if instance_id == ZERO_UUID:
            instance_id = self._new_uuid()
        instance = self._instance(request, instance_id)
        if not instance.may_ask(self._now_ms()):
            raise self._too_early(instance_id)
        instance.last_error = ErrorCode.NONE
        return instance

    def pushed(self, request: Request, instance_id: bytes, subscription_id: int, *, terminating: bool) -> Instance:
        """The client pushes metrics. Raises KafkaError if it must not now."""
        if is_reserved(instance_id):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "invalid client instance id")
        instance = self._instance(request, instance_id)
        was_terminating, instance.is_terminating = instance.is_terminating, terminating
        if was_terminating:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the client said before that it was terminating")
        if not instance.may_push(self._now_ms()) and not terminating:
            raise self._too_early(instance_id)
        if subscription_id != instance.subscription_id:
            instance.last_error = ErrorCode.UNKNOWN_SUBSCRIPTION_ID
            raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        instance.last_error = ErrorCode.NONE
        return instance

    def _too_early(self, instance_id: bytes) -> KafkaError:
        self.refused += 1
        reason = f"{format_uuid(instance_id)} asked or pushed before its interval was over"
        return KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, reason)

    def _instance(self, request: Request, instance_id: bytes) -> Instance:
        instances = self._instances
        instance = instances.pop(instance_id, None)
        if instance is None or instance.generation != self._generation:
            instance = self._looked_up(request, instance_id)
            if len(instances) >= INSTANCES_MAX:
                del instances[next(iter(instances))]
        instances[instance_id] = instance  # the newest are last
        return instance

    def _looked_up(self, request: Request, instance_id: bytes) -> Instance:
        client = request.client
        port = request.connection.peer.rpartition(":")[2] if request.connection is not None else ""
        facts = {
            "client_instance_id": format_uuid(instance_id),
            "client_id": request.client_id,
            "client_software_name": client.software_name,
            "client_software_version": client.software_version,
            "client_source_address": client.host,
            "client_source_port": port,
        }
        found = [one for one in self._subscriptions.values() if one.matches(facts)]
        interval_ms = min((one.interval_ms for one in found), default=INTERVAL_MS_DEFAULT)
        metrics = tuple(dict.fromkeys(metric for one in found for metric in one.metrics))
        if ALL_METRICS in metrics:
            metrics = (ALL_METRICS,)
        return Instance(instance_id, self._generation, metrics, min(interval_ms, INTERVAL_MS_DEFAULT))

    def samples(self) -> Iterable[Sample]:
        yield gauge("penstock_client_metrics_instances", "Clients that asked for subscriptions", len(self._instances))
        yield gauge("penstock_client_metrics_series", "Series that clients have pushed", len(self.series))
        yield counter("penstock_client_metrics_pushes_total", "Pushes of client metrics", self.pushes)
        yield counter("penstock_client_metrics_refused_total", "Requests refused because they came early", self.refused)
        dropped = "Values of client metrics that were invalid or beyond a limit"
        yield counter("penstock_client_metrics_dropped_total", dropped, self.series.dropped)
        yield from self.series.samples(self._now_ms())
