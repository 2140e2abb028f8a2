"""Forwarding of administrative requests: any broker accepts them, the active controller decides them (KIP-590).

A request is sent unchanged, in an Envelope that names its sender, to the active controller; if that is this node, it is
decided at once. After the response of another node, this node waits until its own image shows the change, so that a
client that creates a topic finds it here immediately.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from penstock.acls import Acl, acl_id
from penstock.broker.gate import decided
from penstock.broker.net.access import ANONYMOUS, address_of_host
from penstock.broker.net.peers import ANSWER_LIMITS, Peers
from penstock.broker.net.request import Request
from penstock.broker.node import ControllerNode
from penstock.metadata import MetadataImage, NewTopic
from penstock.metadata.quotas import entity_key, entity_of
from penstock.wire.apis import OF_CONTROLLERS, SERVED, ApiKey
from penstock.wire.codec import Message, decode, encode
from penstock.wire.errors import ErrorCode, KafkaError, WireError
from penstock.wire.headers import read_response_header, write_request_header
from penstock.wire.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from penstock.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from penstock.wire.messages.create_partitions import CreatePartitionsRequest
from penstock.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from penstock.wire.messages.delete_acls import DeleteAclsMatchingAcl, DeleteAclsResponse
from penstock.wire.messages.delete_topics import DeleteTopicsResponse
from penstock.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse

FORWARD_MS = 30_000
"""How long a request waits for an active controller, if it has no timeout of its own."""
IN_FORCE_MS = 2_000
"""How long a response waits for this node's image to show the change."""
CREATE_MS = 10_000
"""How long the creation of a topic that this node needs may take; its client retries anyway."""
CREATE_VERSION = 7
CHANNEL = "forward"

Decide = Callable[[ControllerNode, Request, Any], Message | Awaitable[Message]]


class Administration:
    def __init__(self, node: ControllerNode, peers: Peers, decide: Mapping[ApiKey, Decide]) -> None:
        """`decide`: the controller's handler for each API."""
        self._node = node
        self._peers = peers
        self._decide = decide

    async def call(self, request: Request) -> Any:
        """The response to an administrative request, in force on this node. Errors are in it, as the API defines."""
        if self._node.quorum.controller is None:
            response = await self._forward(request)
            if response is not None:
                await self._in_force(request, response)
                return response
        # This node decides it; or, without any controller, refuses it in the API's own form.
        row = OF_CONTROLLERS[request.row.key]
        assert request.body is not None
        here = Request.of(request.gate, request.client, row, request.version, request.body, client_id=request.client_id)
        return await decided(self._decide[row.key], self._node, here)

    async def create_topics(self, topics: Sequence[NewTopic]) -> dict[str, KafkaError]:
        """Create topics that this node itself needs. Returns the errors by topic name."""
        body = CreateTopicsRequest(
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
        gate, row = self._node.gate, SERVED[ApiKey.CREATE_TOPICS]
        own = Request.of(gate, gate.own, row, CREATE_VERSION, body, client_id=f"node-{self._node.node_id}")
        response: CreateTopicsResponse = await self.call(own)
        return {
            topic.name: KafkaError(ErrorCode(topic.error_code), topic.error_message)
            for topic in response.topics
            if topic.error_code != ErrorCode.NONE
        }

    async def _forward(self, request: Request) -> Message | None:
        row, version, body = request.row, request.version, request.body
        assert body is not None
        data = bytearray()
        write_request_header(data, row.key, version, 0, request.client_id)
        encode(body, version, data)
        timeout_ms = min(FORWARD_MS, getattr(body, "timeout_ms", FORWARD_MS) or FORWARD_MS)
        envelope = EnvelopeRequest(
            request_data=bytes(data),
            request_principal=(request.principal or ANONYMOUS).to_bytes(),
            client_host_address=address_of_host(request.host),
        )
        try:
            answer: EnvelopeResponse = await self._peers.controller_call(
                envelope, timeout_ms=timeout_ms, channel=CHANNEL
            )
            if answer.error_code == ErrorCode.NONE and answer.response_data is not None:
                _, position = read_response_header(answer.response_data, row.key, version)
                response, _ = decode(row.response, version, answer.response_data, position, limits=ANSWER_LIMITS)
                return response
        except (KafkaError, WireError) as error:
            self._node.events.limited("request not forwarded", api=row.name, reason=str(error))
            return None
        if self._node.quorum.controller is not None:
            return None
        # The controller refused the envelope: it may run a release that does not know this API or version.
        is_unknown = answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        return request.refused(
            ErrorCode.UNSUPPORTED_VERSION if is_unknown else ErrorCode.UNKNOWN_SERVER_ERROR,
            f"the active controller does not serve {type(body).__name__} v{version}; upgrade it",
        )

    async def _in_force(self, request: Request, response: Message) -> None:
        condition = shows(request.body, response)
        if condition is not None:
            await self._node.quorum.image_where(condition, IN_FORCE_MS)


def shows(request: Message | None, response: Message) -> Callable[[MetadataImage], bool] | None:
    """A condition that an image meets when it shows what this response says; None if that cannot be determined."""
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
    if isinstance(response, AlterClientQuotasResponse):
        assert isinstance(request, AlterClientQuotasRequest)
        return None if request.validate_only else shows_quotas(request, response)
    if isinstance(request, CreateAclsRequest) and isinstance(response, CreateAclsResponse):
        acls = [
            acl_id(created_acl(creation))
            for creation, result in zip(request.creations, response.results, strict=True)
            if result.error_code == ErrorCode.NONE
        ]
        return lambda image: all(found_id in image.acls for found_id in acls)
    if isinstance(response, DeleteAclsResponse):
        gone = [acl_id(deleted_acl(acl)) for result in response.filter_results for acl in result.matching_acls]
        return lambda image: not any(found_id in image.acls for found_id in gone)
    if isinstance(request, CreatePartitionsRequest) and not request.validate_only:
        refused = [r.name for r in getattr(response, "results", []) if r.error_code != ErrorCode.NONE]
        wanted = [(topic.name, topic.count) for topic in request.topics if topic.name not in refused]
        return lambda image: all(
            (topic := image.topic(name)) is None or len(topic.partitions) >= count for name, count in wanted
        )
    return None


def shows_quotas(
    request: AlterClientQuotasRequest, response: AlterClientQuotasResponse
) -> Callable[[MetadataImage], bool]:
    wanted = [
        (entity_key(entity_of((part.entity_type, part.entity_name) for part in asked.entity)), operation)
        for asked, answered in zip(request.entries, response.entries, strict=False)
        for operation in asked.ops
        if answered.error_code == ErrorCode.NONE
    ]

    def is_shown(image: MetadataImage) -> bool:
        for key, operation in wanted:
            quota = image.quotas.get(key)
            value = None if quota is None else quota.values.get(operation.key)
            if value != (None if operation.remove else operation.value):
                return False
        return True

    return is_shown


def created_acl(creation: AclCreation) -> Acl:
    return Acl(
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )


def deleted_acl(acl: DeleteAclsMatchingAcl) -> Acl:
    return Acl(
        acl.resource_type,
        acl.resource_name,
        acl.pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission_type,
    )
