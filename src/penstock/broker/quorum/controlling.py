"""The periodic work of the active controller: it monitors brokers and fences dead ones.

A broker is dead when it has been silent for `broker.session.timeout.ms`. So a process that stops for a second, or a
network that loses some packets, has no consequences. A broken connection is only a hint that a broker may be gone, and
a new controller cannot know which brokers are alive. In both cases it *probes* the broker's listener. If the host
refuses the connection twice, the process has ended and waiting is pointless: the broker is fenced, and its partitions
get new leaders, within milliseconds of a crash. In all other cases the session timeout decides.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from penstock.broker.net.connection import Connection
from penstock.broker.net.peers import Peers, PeerUnavailable
from penstock.broker.quorum.shell import MetadataQuorum
from penstock.config import BrokerConfig
from penstock.metadata import BrokerRegistration, BrokerSessions, Controller, MetadataDelta, MetadataImage
from penstock.runtime import Runtime, Timer
from penstock.runtime.eventlog import EventLog
from penstock.runtime.steady_clock import SteadyClock
from penstock.runtime.tasks import keep_running
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.api_versions import ApiVersionsRequest

PROBE_TIMEOUT_MS = 1_000
PROBE_WAITS_MS = (0, 20, 20, 50, 100, 200, 400)
"""Pause between attempts. A process that is being killed may still accept connections for a moment."""
REFUSALS = 2
"""A listener may be closed for a moment while its process restarts, so one refusal is not enough."""
PROBE_NEW_MS = 20
"""How long a new controller waits for heartbeats before it probes brokers that sent none."""
PROBE_CHANNEL = "probe"
HEARD_AGAIN_MS = 2_500.0
"""Within this time a broker that is reachable again has sent a heartbeat to a new controller."""
TICK_MS_MIN = 20.0


class ControllerDuties:
    """The duties of one controller, carried out only while it is the active one."""

    def __init__(
        self, runtime: Runtime, events: EventLog, config: BrokerConfig, quorum: MetadataQuorum, peers: Peers
    ) -> None:
        self._runtime = runtime
        self._events = events
        self._quorum = quorum
        self._peers = peers
        self._clock = SteadyClock(runtime)
        self._config = config
        self._active: Controller | None = None
        self._timers: dict[str, Timer] = {}
        self._probing: dict[int, None] = {}
        self._connections: dict[int, dict[Connection, None]] = {}
        self._active_since_ms = 0.0
        self.sessions = BrokerSessions(config.broker_session_timeout_ms)
        quorum.on_leader.append(self._leader_changed)
        quorum.add_publisher(self.on_image)

    # ---- gaining and losing the role

    def _leader_changed(self) -> None:
        controller = self._quorum.controller
        if controller is self._active:
            return
        self._active = controller
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        if controller is None:
            self._clock.stop()
            return
        self._clock.start()
        self.sessions = BrokerSessions(self._config.broker_session_timeout_ms)
        now_ms = self._active_since_ms = self._clock.now_ms()
        for broker in controller.image.brokers.values():
            if not broker.fenced and broker.id != self._config.node_id:
                self.sessions.heard(broker.id, now_ms - self._silent_ms(broker))
        self._arm()
        self._later("probe", PROBE_NEW_MS, self._probe_silent)
        if self._config.auto_leader_rebalance_enable:
            self._later("balance", self._config.leader_imbalance_check_interval_seconds * 1000, self._balance)

    def _silent_ms(self, broker: BrokerRegistration) -> float:
        """How long a broker has already been silent when this controller starts, as far as this node knows.

        It knows that of the previous controller, whose silence is the reason for the change, and of a broker whose
        partitions it follows, if it could not reach it. Without this, each new controller would grant a dead broker a
        whole session, and controllers that fail one after another would keep it in service.
        """
        session_ms = self._config.broker_session_timeout_ms
        silent_ms = 0.0
        node_id, heard_ms = self._quorum.last_leader_heard
        if node_id == broker.id:
            # At most half a session: this process may have been stopped itself. If the other node lives, it is heard at
            # once.
            silent_ms = min(self._runtime.now_ms() - heard_ms, session_ms / 2)
        address = broker.address(self._config.inter_broker_listener_name)
        if address is not None:
            silent_ms = max(silent_ms, min(self._peers.silent_ms(address), session_ms - HEARD_AGAIN_MS))
        return max(0.0, silent_ms)

    def close(self) -> None:
        self._active = None
        self._clock.stop()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    # ---- sessions

    def heard(self, broker_id: int, connection: Connection | None) -> None:
        """A broker registered or sent a heartbeat over this connection."""
        if connection is None:
            return  # this very process, which is alive while it can send requests to itself
        self.sessions.heard(broker_id, self._clock.now_ms())
        connections = self._connections.setdefault(broker_id, {})
        if connection not in connections:
            self._connections[broker_id] = {one: None for one in connections if not one.closed} | {connection: None}
        if connection.on_lost is None:
            connection.on_lost = lambda: self._lost(broker_id)
        if "session" not in self._timers:
            self._arm()

    def is_connected(self, broker_id: int) -> bool:
        """Whether a connection to the broker is open. The kernel closes the connections of a dead process."""
        return any(not connection.closed for connection in self._connections.get(broker_id, ()))

    def is_alive(self, broker_id: int) -> bool:
        return self.sessions.is_alive(broker_id, self._clock.now_ms())

    def _arm(self) -> None:
        wait_ms = self.sessions.next_expiry_ms() - self._clock.now_ms()
        if wait_ms != float("inf"):
            self._later("session", max(TICK_MS_MIN, wait_ms), self._expire)

    async def _expire(self) -> None:
        controller = self._active
        for broker_id in self.sessions.expired(self._clock.now_ms(), self._clock.resumed_ms):
            broker = controller.image.broker(broker_id) if controller is not None else None
            self.sessions.forget(broker_id)
            if broker is not None and not broker.fenced:
                await self._fence(broker, f"silent for {self.sessions.timeout_ms:.0f} ms")
        self._arm()

    async def _fence(self, broker: BrokerRegistration, reason: str) -> None:
        self._events.warning("broker fenced", broker=broker.id, broker_epoch=broker.epoch, reason=reason)
        self.sessions.forget(broker.id)
        try:
            await self._quorum.submit(lambda controller: controller.decide_fence_broker(broker.id, broker.epoch))
        except KafkaError as error:
            # Another controller is active now, or the broker has just registered again.
            if error.code not in (ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_BROKER_EPOCH):
                raise

    # ---- probes

    def _lost(self, broker_id: int) -> None:
        controller = self._active
        broker = controller.image.broker(broker_id) if controller is not None else None
        if broker is not None and not broker.fenced:
            self._probe_soon(broker)

    async def _probe_silent(self) -> None:
        """Probe the brokers that a new controller has not heard from."""
        controller = self._active
        if controller is None:
            return
        for broker in controller.image.brokers.values():
            heard_ms = self.sessions.last_heard_ms(broker.id)
            if not broker.fenced and heard_ms is not None and heard_ms <= self._active_since_ms:
                self._probe_soon(broker)

    def _probe_soon(self, broker: BrokerRegistration) -> None:
        if broker.id not in self._probing:
            self._probing[broker.id] = None
            self._runtime.spawn(self._probe(broker), "probe")

    async def _probe(self, broker: BrokerRegistration) -> None:
        """Fence the broker if nothing listens at its address."""
        refusals = 0
        try:
            for wait_ms in PROBE_WAITS_MS:
                await self._runtime.sleep(wait_ms)
                now = self._active.image.broker(broker.id) if self._active is not None else None
                if now is None or now.epoch != broker.epoch or now.fenced:
                    return
                refused = await self._is_refused(broker)
                if refused is False:
                    return
                refusals += refused is True
                if refusals == REFUSALS:
                    await self._fence(broker, "its process has ended")
                    return
        finally:
            del self._probing[broker.id]

    async def _is_refused(self, broker: BrokerRegistration) -> bool | None:
        """True if the connection is refused, False if the broker responds; None if neither is certain."""
        request = ApiVersionsRequest(client_software_name="penstock", client_software_version="probe")
        address = broker.address(self._config.inter_broker_listener_name)
        if address is None:
            return None
        try:
            await self._peers.call(
                address, request, version=3, timeout_ms=PROBE_TIMEOUT_MS, channel=PROBE_CHANNEL, is_broker=True
            )
        except PeerUnavailable as error:
            return True if error.refused else None
        except KafkaError:
            return False  # something responds, although with another protocol
        finally:
            self._peers.disconnect(address, PROBE_CHANNEL)
        return False

    # ---- leadership

    async def on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Try unclean elections if a topic's configuration may now allow them for partitions without a leader."""
        if self._active is not None and delta.configs_changed:
            self._runtime.spawn(self._elect_unclean(), "controller unclean")

    async def _elect_unclean(self) -> None:
        with suppress(KafkaError):
            await self._quorum.submit(lambda controller: controller.decide_unclean_elections())

    async def _balance(self) -> None:
        moved = 0
        with suppress(KafkaError):
            moved = await self._quorum.submit(lambda controller: controller.decide_balance())
        if self._active is None:
            return
        if moved:
            self._events.info("leaders rebalanced", partitions=moved)
        self._later("balance", self._config.leader_imbalance_check_interval_seconds * 1000, self._balance)

    def _later(self, name: str, delay_ms: float, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        old = self._timers.pop(name, None)
        if old is not None:
            old.cancel()
        self._timers[name] = self._runtime.call_later(delay_ms, self._run, name, work)

    def _run(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._timers.pop(name, None)
        task = f"controller {name}"
        self._runtime.spawn(keep_running(self._runtime, work, task), task)
