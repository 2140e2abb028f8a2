"""What is served on the listeners of controllers: the quorum's own requests, the brokers', and what they pass on."""

from __future__ import annotations

from penstock.broker.apis import (
    absent_features,
    allocate_producer_ids,
    alter_partition,
    begin_quorum_epoch,
    broker_heartbeat,
    broker_registration,
    describe_configs,
    end_quorum_epoch,
    envelope,
    fetch_metadata,
    fetch_snapshot,
    vote,
)
from penstock.broker.apis.administrative import ADMINISTRATIVE
from penstock.broker.quorum.forwarding import Decide
from penstock.wire.apis import OF_CONTROLLERS, ApiKey
from penstock.wire.codec import Message

CONTROLLER_HANDLERS: dict[ApiKey, Decide] = {
    **{
        key: absent_features.answering(answer)
        for key, answer in absent_features.ANSWERS.items()
        if key in OF_CONTROLLERS
    },
    **ADMINISTRATIVE,
    ApiKey.DESCRIBE_CONFIGS: describe_configs.serve_on_controller,
    ApiKey.FETCH: fetch_metadata.serve,
    ApiKey.VOTE: vote.serve,
    ApiKey.BEGIN_QUORUM_EPOCH: begin_quorum_epoch.serve,
    ApiKey.END_QUORUM_EPOCH: end_quorum_epoch.serve,
    ApiKey.ALTER_PARTITION: alter_partition.serve,
    ApiKey.ENVELOPE: envelope.serve,
    ApiKey.FETCH_SNAPSHOT: fetch_snapshot.serve,
    ApiKey.BROKER_REGISTRATION: broker_registration.serve,
    ApiKey.BROKER_HEARTBEAT: broker_heartbeat.serve,
    ApiKey.ALLOCATE_PRODUCER_IDS: allocate_producer_ids.serve,
}
"""ApiVersions and DescribeCluster are not here: they are served before there is a quorum (`penstock.broker.server`)."""


def by_request() -> dict[type[Message], Decide]:
    return {OF_CONTROLLERS[key].request: serve for key, serve in CONTROLLER_HANDLERS.items()}
