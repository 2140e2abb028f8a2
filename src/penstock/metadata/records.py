"""Builds the records that state parts of the image completely."""

from __future__ import annotations

from penstock.acls.rules import Acl
from penstock.metadata.image import BrokerRegistration, ControllerRegistration, PartitionState
from penstock.metadata.quotas import Entity
from penstock.wire.messages import metadata_records as r


def broker_record(broker: BrokerRegistration) -> r.RegisterBrokerRecord:
    return r.RegisterBrokerRecord(
        broker_id=broker.id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[
            r.BrokerEndpoint(name=name, host=host, port=port, security_protocol=protocol)
            for name, host, port, protocol in broker.listeners
        ],
        features=[
            r.BrokerFeature(name=name, min_supported_version=levels.min, max_supported_version=levels.max)
            for name, levels in sorted(broker.features.items())
        ],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.directories),
    )


def controller_record(controller: ControllerRegistration) -> r.RegisterControllerRecord:
    return r.RegisterControllerRecord(
        controller_id=controller.id,
        incarnation_id=controller.incarnation_id,
        end_points=[
            r.ControllerEndpoint(name=name, host=host, port=port, security_protocol=protocol)
            for name, host, port, protocol in controller.listeners
        ],
        features=[
            r.ControllerFeature(name=name, min_supported_version=levels.min, max_supported_version=levels.max)
            for name, levels in sorted(controller.features.items())
        ],
    )


def partition_record(topic_id: bytes, partition: int, state: PartitionState) -> r.PartitionRecord:
    return r.PartitionRecord(
        partition_id=partition,
        topic_id=topic_id,
        replicas=list(state.replicas),
        isr=list(state.isr),
        removing_replicas=list(state.removing),
        adding_replicas=list(state.adding),
        leader=state.leader,
        leader_recovery_state=state.leader_recovery_state,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        directories=list(state.directories),
        eligible_leader_replicas=list(state.elr) or None,
        last_known_elr=list(state.last_known_elr) or None,
    )


def quota_record(entity: Entity, key: str, value: float | None) -> r.ClientQuotaRecord:
    """A quota that is set, or removed if `value` is None."""
    return r.ClientQuotaRecord(
        entity=[r.ClientQuotaEntity(entity_type=kind, entity_name=name) for kind, name in entity],
        key=key,
        value=0.0 if value is None else value,
        remove=value is None,
    )


def acl_record(found_id: bytes, acl: Acl) -> r.AccessControlEntryRecord:
    return r.AccessControlEntryRecord(
        id=found_id,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
