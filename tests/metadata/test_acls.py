"""ACLs as metadata: how the controller decides about them, and that no node sees a record that it cannot read."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from metadata.cluster import Cluster, contents, registration
from penstock.acls import ANY, MATCH, Acl, AclFilter, acl_id
from penstock.metadata import (
    EMPTY_IMAGE,
    FeatureUpdate,
    MetadataDelta,
    MetadataError,
    check_record,
    difference,
    image_from_snapshot,
    salvage_records,
    snapshot_values,
)
from penstock.metadata.acl_control import ACLS_MAX
from penstock.metadata.features import SECURITY_VERSION, SUPPORTED_FEATURES
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages import metadata_records as r

TOPIC, GROUP, CLUSTER = 2, 3, 4
LITERAL, PREFIXED = 3, 4
READ, WRITE = 3, 4
DENY, ALLOW = 2, 3

ALICE = Acl(TOPIC, "orders", LITERAL, "User:alice", "*", READ, ALLOW)
ORDERS = Acl(TOPIC, "ord", PREFIXED, "User:bob", "10.0.0.0/8", WRITE, DENY)
GROUPS = Acl(GROUP, "*", LITERAL, "User:*", "127.0.0.1", READ, ALLOW)


def created(cluster: Cluster, *acls: Acl) -> list[r.MetadataRecord]:
    decision = cluster.controller.decide_create_acls(acls)
    assert not any(outcome.failed for outcome in decision.reply), decision.reply
    cluster.log += decision.records
    return decision.records


# -- creating and deleting ---------------------------------------------------------------------------------------------


def test_an_acl_is_stored_once_however_often_it_is_created() -> None:
    cluster = Cluster(1)
    assert len(created(cluster, ALICE, ALICE)) == 2, "the feature level and one record"
    assert created(cluster, ALICE) == []
    assert list(cluster.image.acls.values()) == [ALICE]


def test_valid_acls_are_created_although_others_in_the_request_are_not() -> None:
    cluster = Cluster(1)
    bad = ALICE._replace(host="example.com")
    decision = cluster.controller.decide_create_acls([bad, ALICE])
    assert [outcome.error for outcome in decision.reply] == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert list(cluster.image.acls.values()) == [ALICE]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"resource_type": 0}, "resourceType"),
        ({"resource_type": ANY}, "resourceType"),
        ({"resource_type": 8}, "resourceType"),
        ({"pattern_type": ANY}, "patternType"),
        ({"pattern_type": MATCH}, "patternType"),
        ({"operation": ANY}, "operation"),
        ({"operation": 16}, "operation"),
        ({"permission": ANY}, "permissionType"),
        ({"resource_name": ""}, "empty"),
        ({"resource_name": "x" * 1025}, "longer"),
        ({"resource_name": "a\nb"}, "control characters"),
        ({"resource_type": CLUSTER, "resource_name": "mine"}, "kafka-cluster"),
        ({"principal": "alice"}, "write it as User:name"),
        ({"principal": "User:"}, "write it as User:name"),
        ({"principal": "User:" + "x" * 1024}, "longer"),
        ({"host": ""}, "host"),
        ({"host": "example.com"}, "host"),
        ({"host": "10.0.0.1/8"}, "did you mean 10.0.0.0/8"),
        ({"host": "1" * 100}, "host"),
    ],
)
def test_an_acl_that_means_nothing_is_refused(changes: dict[str, object], message: str) -> None:
    acl = ALICE._replace(**changes)  # type: ignore[arg-type]
    (outcome,) = Cluster(1).controller.decide_create_acls([acl]).reply
    assert outcome.error == ErrorCode.INVALID_REQUEST
    assert message in (outcome.message or "")
    with pytest.raises(MetadataError):
        check_record(
            r.AccessControlEntryRecord(
                id=b"i" * 16,
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
        )


def test_filters_delete_what_they_match_and_tell_it() -> None:
    cluster = Cluster(1)
    created(cluster, ALICE, ORDERS, GROUPS)
    decision = cluster.controller.decide_delete_acls(
        [
            AclFilter(TOPIC, "orders", MATCH),
            AclFilter(*GROUPS),
            AclFilter(*GROUPS._replace(host="*")),
            AclFilter(operation=99),
        ]
    )
    found = [(result.outcome.error, set(result.deleted)) for result in decision.reply]
    assert found == [
        (ErrorCode.NONE, {ALICE, ORDERS}),
        (ErrorCode.NONE, {GROUPS}),
        (ErrorCode.NONE, set()),
        (ErrorCode.INVALID_REQUEST, set()),
    ]
    assert len(cluster.image.acls) == 0


def test_a_cluster_has_a_bounded_number_of_acls(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ACLS_MAX == 100_000
    monkeypatch.setattr("penstock.metadata.acl_control.ACLS_MAX", 2)
    cluster = Cluster(1)
    decision = cluster.controller.decide_create_acls([ALICE, ORDERS, GROUPS, ALICE])
    assert [outcome.error for outcome in decision.reply] == [0, 0, ErrorCode.POLICY_VIOLATION, 0]


def test_many_broad_filters_in_one_request_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.metadata.acl_control.COMPARISONS_MAX", 5)
    cluster = Cluster(1)
    created(cluster, ALICE, ORDERS, GROUPS)
    with pytest.raises(KafkaError, match="too many for one request"):
        cluster.controller.decide_delete_acls([AclFilter(TOPIC), AclFilter(GROUP)])
    exact = [AclFilter(*ALICE), AclFilter(*ORDERS), AclFilter(TOPIC)]
    assert len(cluster.controller.decide_delete_acls(exact).records) == 2


def test_ids_differ_where_contents_differ() -> None:
    others = [
        ALICE._replace(resource_name="order", principal="sUser:alice"),
        ALICE._replace(pattern_type=PREFIXED),
        ALICE._replace(permission=DENY),
        ALICE._replace(operation=WRITE),
        ALICE._replace(host="127.0.0.1"),
    ]
    assert len({acl_id(acl) for acl in (ALICE, *others)}) == 6


# -- images ------------------------------------------------------------------------------------------------------------


def test_a_snapshot_and_the_log_build_the_same_acls() -> None:
    cluster = Cluster(1)
    created(cluster, ALICE, ORDERS, GROUPS)
    cluster.log += cluster.controller.decide_delete_acls([AclFilter(*ORDERS)]).records
    replayed = MetadataDelta(EMPTY_IMAGE).replay_all(cluster.log).apply(0, 0)
    loaded = image_from_snapshot(cluster.image.snapshot_id, list(snapshot_values(cluster.image)))
    assert contents(replayed) == contents(loaded) == contents(cluster.image)
    assert set(loaded.acls.values()) == {ALICE, GROUPS}


def test_a_delta_tells_what_was_added_and_removed() -> None:
    cluster = Cluster(1)
    created(cluster, ALICE, ORDERS)
    before = cluster.image
    records = [*cluster.controller.decide_delete_acls([AclFilter(*ALICE)]).records, *created(cluster, GROUPS)]
    delta = MetadataDelta(before).replay_all(records)
    for found in (delta, difference(before, delta.apply(9, 1))):
        assert found.acls_removed == [(acl_id(ALICE), ALICE)]
        assert found.acls_added == [(acl_id(GROUPS), GROUPS)]


def test_an_acl_that_comes_and_goes_in_one_step_is_no_change() -> None:
    cluster = Cluster(1)
    created(cluster, ALICE)
    before = cluster.image
    records = cluster.controller.decide_delete_acls([AclFilter(*ALICE)]).records + created(cluster, ALICE)
    assert len(records) == 2
    delta = MetadataDelta(before).replay_all(records)
    assert (delta.acls_removed, delta.acls_added) == ([], [])


def test_intact_acl_records_are_salvaged() -> None:
    cluster = Cluster(1)
    created(cluster, ALICE, ORDERS)
    values = [r.encode_metadata_record(record) for record in cluster.log]
    found = salvage_records([*values, r.encode_metadata_record(r.RemoveAccessControlEntryRecord(id=b"x" * 16))])
    assert set(found.image.acls.values()) == {ALICE, ORDERS}
    assert (found.acls, found.left_out) == (3, 1)


# -- the feature level -------------------------------------------------------------------------------------------------


def without_security(broker_id: int) -> object:
    features = {name: levels for name, levels in SUPPORTED_FEATURES.items() if name != SECURITY_VERSION}
    return replace(registration(broker_id), features=features)


def test_the_first_record_raises_the_level_in_the_same_batch() -> None:
    cluster = Cluster(2)
    assert SECURITY_VERSION not in cluster.image.features, "so the release before can still read this cluster"
    level, _ = created(cluster, ALICE)
    assert level == r.FeatureLevelRecord(name=SECURITY_VERSION, feature_level=1)
    assert cluster.image.features[SECURITY_VERSION] == 1
    assert len(created(cluster, ORDERS)) == 1


def test_while_a_broker_cannot_read_them_no_acl_is_written() -> None:
    cluster = Cluster(1)
    cluster.register(without_security(2))  # type: ignore[arg-type]
    with pytest.raises(KafkaError, match="brokers 2 run a release that cannot read them") as refused:
        cluster.controller.decide_create_acls([ALICE])
    assert refused.value.code == ErrorCode.UNSUPPORTED_VERSION
    assert len(cluster.image.acls) == 0
    cluster.controller.decide_unregister_broker(2)
    created(cluster, ALICE)


def test_a_broker_that_cannot_read_them_may_not_join_afterwards() -> None:
    cluster = Cluster(1)
    created(cluster, ALICE)
    with pytest.raises(KafkaError, match=f"does not support finalized version 1 of {SECURITY_VERSION}"):
        cluster.register(without_security(2))  # type: ignore[arg-type]


def test_controllers_without_the_broker_role_need_their_operators_word() -> None:
    cluster = Cluster(1)
    cluster.controller._voter_ids = lambda: (1, 7)
    with pytest.raises(KafkaError, match="the release of controllers 7 is not known"):
        cluster.controller.decide_create_acls([ALICE])
    cluster.controller.decide_update_features([FeatureUpdate(SECURITY_VERSION, 1)])
    assert len(created(cluster, ALICE)) == 1


def test_the_level_is_lowered_only_when_no_such_record_is_left() -> None:
    cluster = Cluster(1)
    created(cluster, ALICE)
    lower = FeatureUpdate(SECURITY_VERSION, 0, 2)
    with pytest.raises(KafkaError, match="Delete all ACLs"):
        cluster.controller.decide_update_features([lower])
    cluster.controller.decide_delete_acls([AclFilter()])
    cluster.controller.decide_update_features([lower])
    assert SECURITY_VERSION not in cluster.image.features


def test_nodes_that_join_get_the_bootstrap_acls_from_the_log() -> None:
    cluster = Cluster(1)
    created(cluster, ALICE)
    stated = cluster.controller.decide_state_features().records
    joined = MetadataDelta(EMPTY_IMAGE).replay_all(stated).apply(0, 0)
    assert (dict(joined.features), list(joined.acls.values())) == (dict(cluster.image.features), [ALICE])
