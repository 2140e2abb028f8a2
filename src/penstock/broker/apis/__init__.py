"""One module per API, each headed by what it does and what every version changed.

Adding an API: a row in `penstock.wire.apis`, a module here, a line below. A handler gets the broker (`Node`), the
request's circumstances and the decoded request, and returns the response, an awaitable of it, or what a coordinator was
asked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from penstock.broker.apis import (
    absent_features,
    administrative,
    alter_replica_log_dirs,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    delete_records,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    sync_group,
)
from penstock.broker.node import Node
from penstock.broker.service import RequestContext
from penstock.coordinators.host import Asked
from penstock.wire.apis import ApiKey
from penstock.wire.codec import Message

Serve = Callable[[Node, RequestContext, Any], Message | Asked | Awaitable[Message]]

HANDLERS: dict[ApiKey, Serve] = {
    **{key: absent_features.answering(answer) for key, answer in absent_features.ANSWERS.items()},
    **dict.fromkeys(administrative.ADMINISTRATIVE, administrative.serve),
    ApiKey.LIST_OFFSETS: list_offsets.serve,
    ApiKey.METADATA: metadata.serve,
    ApiKey.OFFSET_COMMIT: offset_commit.serve,
    ApiKey.OFFSET_FETCH: offset_fetch.serve,
    ApiKey.FIND_COORDINATOR: find_coordinator.serve,
    ApiKey.JOIN_GROUP: join_group.serve,
    ApiKey.HEARTBEAT: heartbeat.serve,
    ApiKey.LEAVE_GROUP: leave_group.serve,
    ApiKey.SYNC_GROUP: sync_group.serve,
    ApiKey.DESCRIBE_GROUPS: describe_groups.serve,
    ApiKey.LIST_GROUPS: list_groups.serve,
    ApiKey.API_VERSIONS: api_versions.serve,
    ApiKey.DELETE_RECORDS: delete_records.serve,
    ApiKey.INIT_PRODUCER_ID: init_producer_id.serve,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch.serve,
    ApiKey.DESCRIBE_CONFIGS: describe_configs.serve,
    ApiKey.ALTER_REPLICA_LOG_DIRS: alter_replica_log_dirs.serve,
    ApiKey.DESCRIBE_LOG_DIRS: describe_log_dirs.serve,
    ApiKey.DESCRIBE_PRODUCERS: describe_producers.serve,
    ApiKey.DELETE_GROUPS: delete_groups.serve,
    ApiKey.OFFSET_DELETE: offset_delete.serve,
    ApiKey.DESCRIBE_CLUSTER: describe_cluster.serve,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: consumer_group_heartbeat.serve,
    ApiKey.CONSUMER_GROUP_DESCRIBE: consumer_group_describe.serve,
    ApiKey.LIST_CONFIG_RESOURCES: list_config_resources.serve,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions.serve,
}
"""Produce and Fetch are not here: they read their own frames (`penstock.broker.server` adds them)."""
