"""Requests from this node to other nodes: to an address, a broker, or the active controller.

    response = await peers.call((host, port), FetchRequest(…), timeout_ms=30_000, channel="fetch-2")
    response = await peers.call(2, OffsetForLeaderEpochRequest(…), timeout_ms=30_000)   # broker 2, where it listens
    response = await peers.controller_call(AlterPartitionRequest(…), timeout_ms=30_000) # whoever is active controller

A *channel* is one connection to one address. A node answers the requests of a connection one after the other, so
requests that may wait for long (a parked fetch) use a separate, named channel.

A request that cannot be sent, or is not answered, ends with `PeerUnavailable`; whether to ask again is for the caller
to decide. How a channel is opened, and what ends it: `penstock.broker.net.peer_channel`.

`controller_call` is the exception: it retries until the active controller answers or the timeout expires. On the active
controller itself it needs no connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from penstock.broker.net.peer_channel import (
    ANSWER_LIMITS,
    SILENCE_MS,
    Address,
    Attempts,
    Call,
    Channel,
    Reply,
    conclude,
)
from penstock.broker.net.peer_connection import PeerUnavailable
from penstock.broker.security.outgoing import PLAIN_PEERS, PeerSecurity
from penstock.runtime import Future, Runtime
from penstock.wire.apis import ServedApi, api_named
from penstock.wire.codec import Message, decode
from penstock.wire.errors import ErrorCode, KafkaError, WireError

__all__ = ["ANSWER_LIMITS", "SILENCE_MS", "Address", "ControllerLocation", "PeerUnavailable", "Peers", "Reply"]

CONTROLLER_RETRY_MS = 50
"""Pause before a request that found no active controller tries again; a new controller ends it early."""


class ControllerLocation(NamedTuple):
    """The active controller, as far as this node knows."""

    node_id: int
    address: Address


class Peers:
    """All outgoing connections of a node."""

    def __init__(
        self,
        runtime: Runtime,
        node_id: int,
        *,
        to_brokers: PeerSecurity = PLAIN_PEERS,
        to_controllers: PeerSecurity = PLAIN_PEERS,
    ) -> None:
        """How connections to brokers, and to controllers, are secured."""
        self._to_brokers = to_brokers
        self._to_controllers = to_controllers
        self._runtime = runtime
        self._node_id = node_id
        self._channels: dict[tuple[str, int, str], Channel] = {}
        self._attempts = Attempts(runtime)
        self._closed = False
        self._waiting_for_controller: list[Future[None]] = []
        self._controller_calls: dict[int, Call] = {}
        self._controller_call_ids = 0
        self.broker_address: Callable[[int], Address | None] = lambda node_id: None
        """Where broker `node_id` listens for other brokers; None if it is not known. Set by the server."""
        self.controller_location: Callable[[], ControllerLocation | None] = lambda: None
        """Set by the server."""
        self.local_controller: Callable[[Message, int], Awaitable[Message]] | None = None
        """(request, version) → the answer of this node's own controller. Set by nodes that have one."""

    # ---- requests

    async def call(
        self,
        target: int | Address,
        request: Message,
        *,
        timeout_ms: float,
        silence_ms: float | None = None,
        version: int | None = None,
        channel: str = "",
        is_broker: bool = False,
    ) -> Any:
        """Send a request to a broker (by its id) or to an address, and return the answer. An address is a controller's,
        unless `is_broker`.

        `silence_ms`: give up as soon as nothing at all has come from the peer for so long. `version` is the newest the
        caller wants; the peer may speak only an older one. Record data in the answer is
        not copied: it lives as long as the answer does.
        """
        api = api_named(type(request).__name__.removesuffix("Request"))
        reply = await self.exchange(
            target,
            request,
            timeout_ms=timeout_ms,
            silence_ms=silence_ms,
            version=version,
            channel=channel,
            is_broker=is_broker,
        )
        return _decoded(api, reply)

    async def exchange(
        self,
        target: int | Address,
        request: Message,
        *,
        timeout_ms: float,
        silence_ms: float | None = None,
        version: int | None = None,
        channel: str = "",
        is_broker: bool = False,
    ) -> Reply:
        """Like `call`, for callers that parse the answer's bytes themselves."""
        address = self.broker_address(target) if isinstance(target, int) else target
        if address is None:
            raise PeerUnavailable(f"node {target} is not known, or not registered with an address")
        call = Call(self._runtime)
        security = self._to_brokers if is_broker or isinstance(target, int) else self._to_controllers
        return await self._channel(address, channel, security).exchange(call, request, version, timeout_ms, silence_ms)

    async def controller_call(
        self,
        request: Message,
        *,
        timeout_ms: float,
        silence_ms: float | None = None,
        version: int | None = None,
        channel: str = "controller",
    ) -> Any:
        """Send a request to the active controller, which may change meanwhile, and return the answer.

        KafkaError(NOT_CONTROLLER) when time is up without one. A request may reach the controller twice, if the
        connection broke before its answer came. `silence_ms`: send it again over a new connection after so long
        without a word.
        """
        runtime = self._runtime
        deadline_ms = runtime.now_ms() + timeout_ms
        api = api_named(type(request).__name__.removesuffix("Request"))
        reason = "no active controller is known"
        while (left_ms := deadline_ms - runtime.now_ms()) > 0 and not self._closed:
            location = self.controller_location()
            response: Message | None = None
            if location is not None and location.node_id == self._node_id:
                assert self.local_controller is not None, "only a controller can be the active one"
                response = await self.local_controller(request, min(version or api.max_version, api.max_version))
                reason = "this node is about to become the active controller"
            elif location is not None:
                try:
                    response = await self._ask_controller(
                        location.address, api, request, version, left_ms, silence_ms, channel
                    )
                    reason = f"node {location.node_id} is not the active controller"
                except PeerUnavailable as error:
                    reason = f"node {location.node_id}: {error.reason}"
            if response is not None and getattr(response, "error_code", 0) != ErrorCode.NOT_CONTROLLER:
                return response
            await self._controller_change(min(CONTROLLER_RETRY_MS, max(1.0, deadline_ms - runtime.now_ms())))
        raise KafkaError(ErrorCode.NOT_CONTROLLER, f"{api.name} found no active controller: {reason}")

    async def _ask_controller(
        self,
        address: Address,
        api: ServedApi,
        request: Message,
        version: int | None,
        timeout_ms: float,
        silence_ms: float | None,
        channel: str,
    ) -> Message:
        call = Call(self._runtime)
        self._controller_call_ids += 1
        number = self._controller_call_ids
        self._controller_calls[number] = call
        try:
            exchange = self._channel(address, channel, self._to_controllers).exchange
            return _decoded(api, await exchange(call, request, version, timeout_ms, silence_ms))
        finally:
            del self._controller_calls[number]

    def controller_changed(self) -> None:
        """The active controller has changed: fail requests to the old one, so that they are sent to the new one."""
        for call in list(self._controller_calls.values()):
            call.fail(PeerUnavailable("another node became the controller", sent=True))
        waiting, self._waiting_for_controller = self._waiting_for_controller, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def _controller_change(self, timeout_ms: float) -> None:
        future: Future[None] = self._runtime.future()
        self._waiting_for_controller.append(future)
        timer = self._runtime.call_later(timeout_ms, conclude, future)
        await future
        timer.cancel()

    # ---- channels

    def _channel(self, address: Address, name: str, security: PeerSecurity) -> Channel:
        if self._closed:
            raise PeerUnavailable("this node is stopping")
        key = (*address, name)
        channel = self._channels.get(key)
        if channel is None:
            client_id = f"node-{self._node_id}-{name}" if name else f"node-{self._node_id}"
            channel = self._channels[key] = Channel(self._runtime, address, client_id, self._attempts, security)
        return channel

    def silent_ms(self, address: Address) -> float:
        """For how long this node has failed to reach an address; 0 if it has not tried lately."""
        return self._attempts.silent_ms(address)

    def disconnect(self, address: Address, channel: str = "") -> None:
        """Close a channel that is no longer needed; requests on it end with PeerUnavailable."""
        found = self._channels.pop((*address, channel), None)
        if found is not None:
            found.close()

    def close(self) -> None:
        """Refuse new requests; pending ones end with PeerUnavailable."""
        self._closed = True
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()
        self.controller_changed()


def _decoded(api: ServedApi, reply: Reply) -> Message:
    view = memoryview(reply.frame)
    try:
        message, _ = decode(api.response, reply.version, view, reply.position, limits=ANSWER_LIMITS)
    except WireError as error:
        raise PeerUnavailable(f"its answer to {api.name} cannot be read: {error}", sent=True) from None
    return message
