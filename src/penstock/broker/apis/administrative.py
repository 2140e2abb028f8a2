"""Requests that change or describe the cluster as a whole: any broker takes them, the active controller decides."""

from __future__ import annotations

from penstock.broker.apis import (
    add_raft_voter,
    alter_configs,
    alter_partition_reassignments,
    create_partitions,
    create_topics,
    delete_topics,
    describe_quorum,
    elect_leaders,
    incremental_alter_configs,
    list_partition_reassignments,
    remove_raft_voter,
    unregister_broker,
    update_features,
)
from penstock.broker.node import Node
from penstock.broker.quorum.forwarding import Decide
from penstock.broker.service import RequestContext
from penstock.wire.apis import SERVED, ApiKey
from penstock.wire.codec import Message

ADMINISTRATIVE: dict[ApiKey, Decide] = {
    ApiKey.CREATE_TOPICS: create_topics.decide,
    ApiKey.DELETE_TOPICS: delete_topics.decide,
    ApiKey.ALTER_CONFIGS: alter_configs.decide,
    ApiKey.CREATE_PARTITIONS: create_partitions.decide,
    ApiKey.ELECT_LEADERS: elect_leaders.decide,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs.decide,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: alter_partition_reassignments.decide,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: list_partition_reassignments.decide,
    ApiKey.DESCRIBE_QUORUM: describe_quorum.decide,
    ApiKey.UPDATE_FEATURES: update_features.decide,
    ApiKey.UNREGISTER_BROKER: unregister_broker.decide,
    ApiKey.ADD_RAFT_VOTER: add_raft_voter.decide,
    ApiKey.REMOVE_RAFT_VOTER: remove_raft_voter.decide,
}


def by_request() -> dict[type[Message], Decide]:
    return {SERVED[key].request: decide for key, decide in ADMINISTRATIVE.items()}


async def serve(node: Node, context: RequestContext, request: Message) -> Message:
    """What a broker does with such a request."""
    response: Message = await node.administration.call(request, context.version)
    return response
