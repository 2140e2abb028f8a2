"""A broker's life in its cluster: it registers, catches up, is put in service, says that it lives, takes its leave.

    starting ── register ──▸ fenced ── heartbeats, caught up ──▸ in service ── controlled shutdown ──▸ gone
                                ▴──── the controller fenced it ─────┘

Every start is a new *incarnation*, registered with the active controller under a new broker epoch. The epoch of the
last clean stop, if there was one, is the proof that nothing was lost; without it the controller takes the broker out
of every ISR in the same moment. Heartbeats go to whoever is the active controller, at once when that changes.
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
"""Between attempts to register, and between heartbeats of a broker that is not in service yet."""
SHUTDOWN_MS = 10_000
"""How long a stopping broker waits for the controller's leave."""
SHUTDOWN_CALL_MS = 1_000
SHUTDOWN_CALLS = 2
"""So often it asks a controller that does not answer: the others may be stopping too, with nobody left to take over."""

REASONS = {
    ErrorCode.INCONSISTENT_CLUSTER_ID: (
        "the data directory belongs to another cluster than the controllers do. Start it with controllers of its own "
        "cluster (controller.quorum.voters), or with an empty directory to join this one"
    ),
    ErrorCode.UNSUPPORTED_VERSION: (
        "the cluster uses a feature level that this release does not know. Start the release that the cluster runs"
    ),
    ErrorCode.INVALID_REGISTRATION: (
        "its data directory is that of another broker, which is registered already: copies of a directory cannot run "
        "side by side. Start it with an empty directory"
    ),
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: (
        "another broker is alive under the same node.id. Every node of a cluster needs its own"
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
        `contact` is told when the controller has answered."""
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
        """Until the active controller has admitted this broker. Raises RegistrationRefused."""
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
                # What the registration did to partitions must be in force here before any of them is served.
                await self._quorum.image_where(
                    lambda image: (found := image.broker(self._config.node_id)) is not None
                    and found.epoch >= self.epoch,
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
        """Until the controller has unfenced this broker for the first time, and its own image says so."""
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
        """By how much an answer may be out of date. One of this very node's controller says nothing about the others: a
        leader that hears from no majority of them believes that it leads until it has checked."""
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
        """The controller knows this broker under another epoch, or not at all. Whoever goes on would do harm."""
        await self._runtime.sleep(RETRY_MS)
        known = self._quorum.image.broker(self._config.node_id)
        if not self._stopped and (known is None or known.epoch > self.epoch):
            now = "it was unregistered" if known is None else f"another process registered as node {known.id} after it"
            self._runtime.fatal(f"broker {self._config.node_id} is no longer part of the cluster: {now}")

    def _hurry(self) -> None:
        """Another controller may be active now: let it know at once that this broker lives."""
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
        """Controlled shutdown: return when others have taken over what this broker led, or cannot."""
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
            self._events.warning("controlled shutdown", reason="the controller gave no leave: stopping without it")
            self._leave.set_result(None)

    def stop(self) -> None:
        self._stopped = True
        self._hurry()
