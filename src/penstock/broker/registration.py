"""The lifecycle of a broker in its cluster: register, catch up, be unfenced, send heartbeats, shut down.

    starting ── register ──▸ fenced ── heartbeats, caught up ──▸ in service ── controlled shutdown ──▸ gone
                                ▴──── the controller fenced it ─────┘

Every start is a new *incarnation*, registered with the active controller under a new broker epoch. The epoch of the
last clean stop, if there was one, proves that no data were lost; without it the controller removes the broker from
every ISR at once. Heartbeats go to the active controller, and one is sent at once when that changes.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.broker.net.peers import SILENCE_MS, Peers, PeerUnavailable
from penstock.broker.quorum.shell import MetadataQuorum
from penstock.broker.replicas.contact import Contact
from penstock.config import BrokerConfig
from penstock.metadata import SUPPORTED_FEATURES, Listener
from penstock.runtime import Future, Runtime
from penstock.runtime.eventlog import EventLog
from penstock.runtime.tasks import keep_running
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages import broker_registration as wire
from penstock.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse

HEARTBEAT_CHANNEL = "heartbeat"
REGISTER_CALL_MS = 5_000
RETRY_MS = 100
"""The pause between attempts to register, and between heartbeats of a broker that is not in service yet."""
SHUTDOWN_MS = 10_000
"""How long a stopping broker waits for the controller's permission."""
SHUTDOWN_CALL_MS = 1_000
SHUTDOWN_CALLS = 2
"""Attempts to reach a controller that does not answer: all controllers may be stopping too."""

REASONS = {
    ErrorCode.INCONSISTENT_CLUSTER_ID: (
        "its data directory belongs to another cluster. Set controller.quorum.voters to the controllers of its own "
        "cluster, or start it with an empty directory to join this one"
    ),
    ErrorCode.UNSUPPORTED_VERSION: (
        "the cluster uses a feature level that this release does not support. Start the release that the cluster runs"
    ),
    ErrorCode.INVALID_REGISTRATION: (
        "its data directory is a copy of that of another registered broker, and both cannot run at the same time. "
        "Start it with an empty directory"
    ),
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: (
        "another live broker uses the same node.id. Every node of a cluster needs its own"
    ),
}


class RegistrationRefused(Exception):
    """The broker cannot join; the message says why and what to do."""


class BrokerLifecycle:
    def __init__(
        self,
        runtime: Runtime,
        events: EventLog,
        config: BrokerConfig,
        quorum: MetadataQuorum,
        peers: Peers,
        *,
        listeners: tuple[Listener, ...],
        directory_id: bytes,
        previous_epoch: int,
        contact: Contact,
    ) -> None:
        """`previous_epoch`: the broker epoch under which the last clean stop happened, or -1.
        `contact` is called when the controller has answered."""
        self._runtime = runtime
        self._events = events
        self._config = config
        self._quorum = quorum
        self._peers = peers
        self._listeners = listeners
        self._directory_id = directory_id
        self._previous_epoch = previous_epoch
        self._contact = contact
        self._wake: Future[None] | None = None
        self._in_service: Future[None] = runtime.future()
        self._leave: Future[None] | None = None
        self._stopped = False
        self.incarnation_id = runtime.uuid()
        self.epoch = -1
        """The broker epoch of this incarnation; -1 before it is registered."""
        self.fenced = True

    # ---- register

    async def register(self, stopping: Callable[[], bool] = lambda: False) -> None:
        """Retry until the active controller has admitted this broker. Raises RegistrationRefused."""
        runtime = self._runtime
        deadline_ms = runtime.now_ms() + self._config.initial_broker_registration_timeout_ms
        request = self._request()
        while not stopping():
            code = ErrorCode.NOT_CONTROLLER
            try:
                response = await self._peers.controller_call(
                    request, timeout_ms=REGISTER_CALL_MS, silence_ms=SILENCE_MS, channel=HEARTBEAT_CHANNEL
                )
                code = ErrorCode(response.error_code)
            except KafkaError as error:
                self._events.recurring("registration", "", reason=error.message)
            if code == ErrorCode.NONE:
                self.epoch = response.broker_epoch
                # The effects of the registration on partitions must be applied here before any of them is served.
                await self._quorum.image_where(
                    lambda image: (
                        (found := image.broker(self._config.node_id)) is not None and found.epoch >= self.epoch
                    ),
                    REGISTER_CALL_MS,
                )
                return
            late = runtime.now_ms() >= deadline_ms
            if code in REASONS and (late or code != ErrorCode.DUPLICATE_BROKER_REGISTRATION):
                raise RegistrationRefused(
                    f"broker {self._config.node_id} was refused by the controller ({code.name}): {REASONS[code]}"
                )
            if code != ErrorCode.NOT_CONTROLLER:
                self._events.recurring("registration", "", reason=REASONS.get(code, code.name))
            await runtime.sleep(RETRY_MS)

    def _request(self) -> wire.BrokerRegistrationRequest:
        return wire.BrokerRegistrationRequest(
            broker_id=self._config.node_id,
            cluster_id=self._quorum.cluster_id,
            incarnation_id=self.incarnation_id,
            listeners=[
                wire.Listener(name=name, host=host, port=port, security_protocol=protocol)
                for name, host, port, protocol in self._listeners
            ],
            features=[
                wire.Feature(name=name, min_supported_version=levels.min, max_supported_version=levels.max)
                for name, levels in SUPPORTED_FEATURES.items()
            ],
            rack=self._config.broker_rack,
            log_dirs=[self._directory_id],
            previous_broker_epoch=self._previous_epoch,
        )

    # ---- heartbeats

    def start(self) -> None:
        """Begin to send heartbeats."""
        self._quorum.on_leader.append(self._hurry)
        self._runtime.spawn(keep_running(self._runtime, self._beat, "heartbeats"), "heartbeats")

    async def in_service(self) -> None:
        """Wait until the controller has unfenced this broker for the first time, and this node's image shows it."""
        await self._in_service
        await self._quorum.image_where(
            lambda image: (found := image.broker(self._config.node_id)) is not None and not found.fenced,
            REGISTER_CALL_MS,
        )

    async def _beat(self) -> None:
        unanswered = 0
        while not self._stopped:
            asked_ms = self._contact.now_ms()
            response = await self._heartbeat()
            interval_ms: float = RETRY_MS
            if response is not None and response.error_code == ErrorCode.NONE:
                self._contact.heard_controller(asked_ms - self._unconfirmed_ms())
                self._take(response)
                if not self.fenced and self._leave is None:
                    interval_ms = self._config.broker_heartbeat_interval_ms
            elif self._leave is not None:
                unanswered += 1
                if unanswered >= SHUTDOWN_CALLS:
                    self._give_up()
            elif response is not None and response.error_code == ErrorCode.STALE_BROKER_EPOCH:
                await self._unknown()
            await self._pause(interval_ms)

    def _unconfirmed_ms(self) -> float:
        """How outdated an answer may be. An answer of this node's own controller proves nothing about the others: a
        leader without a majority believes that it leads until its check fails."""
        if self._quorum.controller is None:
            return 0.0
        return min(self._quorum.core.config.check_quorum_timeout_ms, self._config.broker_session_timeout_ms / 2)

    async def _heartbeat(self) -> BrokerHeartbeatResponse | None:
        request = BrokerHeartbeatRequest(
            broker_id=self._config.node_id,
            broker_epoch=self.epoch,
            current_metadata_offset=self._quorum.image.offset,
            want_shut_down=self._leave is not None,
        )
        try:
            response: BrokerHeartbeatResponse = await self._peers.controller_call(
                request,
                timeout_ms=self._config.broker_session_timeout_ms / 2 if self._leave is None else SHUTDOWN_CALL_MS,
                silence_ms=SILENCE_MS,
                channel=HEARTBEAT_CHANNEL,
            )
            return response
        except (KafkaError, PeerUnavailable) as error:
            self._events.recurring("heartbeat", "", reason=str(error))
            return None

    def _take(self, response: BrokerHeartbeatResponse) -> None:
        if self.fenced != response.is_fenced:
            self.fenced = response.is_fenced
            self._events.info("broker", fenced=self.fenced, broker_epoch=self.epoch)
        if not self.fenced and not self._in_service.done():
            self._in_service.set_result(None)
        if response.should_shut_down and self._leave is not None and not self._leave.done():
            self._leave.set_result(None)

    async def _unknown(self) -> None:
        """The controller knows this broker under another epoch, or not at all. Stop: continuing could lose data."""
        await self._runtime.sleep(RETRY_MS)
        known = self._quorum.image.broker(self._config.node_id)
        if not self._stopped and (known is None or known.epoch > self.epoch):
            now = "it was unregistered" if known is None else f"another process registered as node {known.id} after it"
            self._runtime.fatal(f"broker {self._config.node_id} is no longer part of the cluster: {now}")

    def _hurry(self) -> None:
        """Another controller may be active now: send it a heartbeat at once."""
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def _pause(self, interval_ms: float) -> None:
        wake: Future[None] = self._runtime.future()
        self._wake = wake
        timer = self._runtime.call_later(interval_ms, self._hurry)
        await wake
        timer.cancel()
        self._wake = None

    # ---- the end

    async def leave(self) -> None:
        """Controlled shutdown: return when other brokers lead this broker's partitions, or cannot."""
        others = any(
            not broker.fenced for broker in self._quorum.image.brokers.values() if broker.id != self._config.node_id
        )
        if not others or self.epoch < 0 or not self._config.controlled_shutdown_enable:
            self._stopped = True
            self._hurry()
            return
        self._leave = self._runtime.future()
        self._hurry()
        timer = self._runtime.call_later(SHUTDOWN_MS, self._give_up)
        await self._leave
        timer.cancel()
        self._stopped = True

    def _give_up(self) -> None:
        if self._leave is not None and not self._leave.done():
            self._events.warning("controlled shutdown", reason="no permission from the controller: stopping anyway")
            self._leave.set_result(None)

    def stop(self) -> None:
        self._stopped = True
        self._hurry()
