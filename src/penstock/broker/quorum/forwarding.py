"""Administrative requests: any broker takes them, the active controller decides them (KIP-590).

A request is passed on as it is, in an Envelope, to whoever is the active controller; where that is this very node it
is decided at once. Having got the answer of another node, this one waits until its own image shows what was done, so
that a client which creates a topic finds it here right afterwards.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from penstock.broker.net.peers import ANSWER_LIMITS, Peers
from penstock.broker.node import ControllerNode
from penstock.broker.quorum.controlling import Caller
from penstock.metadata import MetadataImage, NewTopic
from penstock.wire.apis import api_named
from penstock.wire.codec import Message, decode, encode
from penstock.wire.errors import ErrorCode, KafkaError, WireError
from penstock.wire.headers import read_response_header, write_request_header
from penstock.wire.messages.create_partitions import CreatePartitionsRequest
from penstock.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from penstock.wire.messages.delete_topics import DeleteTopicsResponse
from penstock.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse

FORWARD_MS = 30_000
"""How long a request looks for an active controller, if it does not say itself."""
IN_FORCE_MS = 2_000
"""How long an answer waits for this node's image to show what was decided."""
CREATE_MS = 10_000
"""How long a topic that this node needs may take; its client asks again anyway."""
CREATE_VERSION = 7
CHANNEL = "forward"

Decide = Callable[[ControllerNode, Caller, Any], Message | Awaitable[Message]]


class Administration:
    def __init__(self, node: ControllerNode, peers: Peers, decide: Mapping[type[Message], Decide]) -> None:
        """`decide`: what a controller does with each request, by its class."""
        self._node = node
        self._peers = peers
        self._decide = decide

    async def call(self, request: Message, version: int) -> Any:
        """The answer to an administrative request, in force on this node. Errors are in it, as the API has them."""
        quorum = self._node.quorum
        if quorum.controller is None:
            response = await self._forward(request, version)
            if response is not None:
                await self._in_force(request, response)
                return response
        # Here it is decided; or, without any controller, refused in the API's own form.
        return await self._locally(request, version)

    async def create_topics(self, topics: Sequence[NewTopic]) -> dict[str, KafkaError]:
        """Create topics that this node itself needs. Those that could not be, by name, and why."""
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=topic.name,
                    num_partitions=topic.num_partitions,
                    replication_factor=topic.replication_factor,
                    configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs],
                )
                for topic in topics
            ],
            timeout_ms=CREATE_MS,
        )
        response: CreateTopicsResponse = await self.call(request, CREATE_VERSION)
        return {
            topic.name: KafkaError(ErrorCode(topic.error_code), topic.error_message)
            for topic in response.topics
            if topic.error_code != ErrorCode.NONE
        }

    async def _locally(self, request: Message, version: int) -> Message:
        result = self._decide[type(request)](self._node, Caller(version), request)
        return result if isinstance(result, Message) else await result

    async def _forward(self, request: Message, version: int) -> Message | None:
        api = api_named(type(request).__name__.removesuffix("Request"))
        data = bytearray()
        write_request_header(data, api.key, version, 0, f"node-{self._node.node_id}")
        encode(request, version, data)
        timeout_ms = min(FORWARD_MS, getattr(request, "timeout_ms", FORWARD_MS) or FORWARD_MS)
        envelope = EnvelopeRequest(request_data=bytes(data), request_principal=None, client_host_address=b"")
        try:
            answer: EnvelopeResponse = await self._peers.controller_call(
                envelope, timeout_ms=timeout_ms, channel=CHANNEL
            )
            if answer.error_code == ErrorCode.NONE and answer.response_data is not None:
                _, position = read_response_header(answer.response_data, api.key, version)
                response, _ = decode(api.response, version, answer.response_data, position, limits=ANSWER_LIMITS)
                return response
        except (KafkaError, WireError) as error:
            self._node.events.limited("request not forwarded", api=api.name, reason=str(error))
            return None
        return await self._refused(request, version, answer.error_code)

    async def _refused(self, request: Message, version: int, code: int) -> Message | None:
        """The controller did not open the envelope: what it says, in the form that the client's API has for errors.

        It may run another release, which does not know this API or this version of it.
        """
        if self._node.quorum.controller is not None:
            return None
        refused = code if code == ErrorCode.UNSUPPORTED_VERSION else ErrorCode.UNKNOWN_SERVER_ERROR
        reason = f"the active controller does not serve {type(request).__name__} v{version}: see its release"
        return with_error(await self._locally(request, version), ErrorCode(refused), reason)

    async def _in_force(self, request: Message, response: Message) -> None:
        condition = shows(request, response)
        if condition is not None:
            await self._node.quorum.image_where(condition, IN_FORCE_MS)


def with_error(response: Message, code: ErrorCode, reason: str) -> Message:
    """An answer that says everywhere that this node is not the controller, with another error instead."""
    if getattr(response, "error_code", ErrorCode.NONE) == ErrorCode.NOT_CONTROLLER:
        response.error_code = code  # type: ignore[attr-defined]
        if hasattr(response, "error_message"):
            response.error_message = reason
    for name in response.__struct_fields__:
        inner = getattr(response, name)
        for item in inner if isinstance(inner, list) else ():
            if isinstance(item, Message):
                with_error(item, code, reason)
    return response


def shows(request: Message, response: Message) -> Callable[[MetadataImage], bool] | None:
    """Whether an image shows what this answer says; None where that cannot be told."""
    if isinstance(response, CreateTopicsResponse):
        assert isinstance(request, CreateTopicsRequest)
        if request.validate_only:
            return None
        created = [topic.name for topic in response.topics if topic.error_code == ErrorCode.NONE]
        existing = [t.name for t in response.topics if t.error_code == ErrorCode.TOPIC_ALREADY_EXISTS]
        return lambda image: all(image.topic(name) is not None for name in (*created, *existing))
    if isinstance(response, DeleteTopicsResponse):
        deleted = [topic.topic_id for topic in response.responses if topic.error_code == ErrorCode.NONE]
        return lambda image: all(image.topic_by_id(topic_id) is None for topic_id in deleted)
    if isinstance(request, CreatePartitionsRequest) and not request.validate_only:
        refused = [r.name for r in getattr(response, "results", []) if r.error_code != ErrorCode.NONE]
        wanted = [(topic.name, topic.count) for topic in request.topics if topic.name not in refused]
        return lambda image: all(
            (topic := image.topic(name)) is None or len(topic.partitions) >= count for name, count in wanted
        )
    return None
