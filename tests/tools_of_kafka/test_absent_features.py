"""Features that are not there yet: tools and requests get Kafka's answer, or an error that says why, and never wait.

ACLs, delegation tokens, SCRAM, transactions, share and streams groups, and the levels of
features.
"""

from __future__ import annotations

from functools import partial

import pytest

from clients.groups.librdkafka import produce
from penstock.wire.apis import SERVED
from penstock.wire.codec import Message
from penstock.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from penstock.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from penstock.wire.messages.create_acls import AclCreation, CreateAclsRequest
from penstock.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from penstock.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from penstock.wire.messages.describe_acls import DescribeAclsRequest
from penstock.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from penstock.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from penstock.wire.messages.describe_delegation_token import DescribeDelegationTokenRequest
from penstock.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from penstock.wire.messages.describe_transactions import DescribeTransactionsRequest
from penstock.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from penstock.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from penstock.wire.messages.list_transactions import ListTransactionsRequest
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from penstock.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from penstock.wire.messages.sasl_handshake import SaslHandshakeRequest
from support.server_process import ServerProcess
from tools_of_kafka.asking import ask
from tools_of_kafka.both import Both

pytestmark = [pytest.mark.needs_maven, pytest.mark.xdist_group("tools of Kafka")]

CLIENT_METRICS = 16
NOT_SUPPORTED = "The node does not support "


SAME: list[Message] = [
    SaslHandshakeRequest(mechanism="PLAIN"),
    DescribeAclsRequest(resource_type_filter=2, resource_name_filter=None, operation=1, permission_type=1),
    CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=2, resource_name=name, principal="User:a", host="*", operation=3, permission_type=3
            )
            for name in "tu"
        ]
    ),
    CreateAclsRequest(),
    DeleteAclsRequest(filters=[DeleteAclsFilter(resource_type_filter=2, operation=1, permission_type=1)] * 2),
    AlterReplicaLogDirsRequest(
        dirs=[AlterReplicaLogDir(path="/nowhere", topics=[AlterReplicaLogDirTopic(name="t", partitions=[0])])]
    ),
    CreateDelegationTokenRequest(max_lifetime_ms=-1),
    RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=1),
    ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=1),
    DescribeDelegationTokenRequest(owners=None),
    DescribeDelegationTokenRequest(owners=[]),
    DescribeUserScramCredentialsRequest(users=None),
    *(DescribeUserScramCredentialsRequest(users=[UserName(name="bob")] * times) for times in (1, 2)),
    AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion(name="bob", mechanism=1)]),
    AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion(name="", mechanism=1)]),
    DescribeTransactionsRequest(transactional_ids=["x", "x"]),
    ListTransactionsRequest(state_filters=["Ongoing", "Odd"]),
    DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=CLIENT_METRICS, configuration_keys=None)]),
]


def test_requests_get_kafkas_answers_in_every_version(both: Both) -> None:
    # There is a coordinator for transactions once somebody has looked for one.
    both.same("kafka-transactions", "describe", "--transactional-id", "x")
    for request in SAME:
        api = next(api for api in SERVED.values() if api.request is type(request))
        for version in api.versions:
            both_answer_the_same(both, request, version)
    both_answer_the_same(both, ListTransactionsRequest(transactional_id_pattern="["), 2)


def both_answer_the_same(both: Both, request: Message, version: int) -> None:
    kafka, penstock = both.each(lambda server: ask(server, request, version))
    assert penstock == kafka, f"{request} v{version}"


def test_clients_are_told_that_they_may_do_everything(both: Both, name: str) -> None:
    both.same("kafka-topics", "--create", "--topic", name)
    topics = [MetadataRequestTopic(name=name), MetadataRequestTopic(name=f"{name}-nowhere")]
    for version in range(8, 14):
        kafka, penstock = both.each(
            partial(
                operations_told,
                request=MetadataRequest(
                    topics=topics,
                    allow_auto_topic_creation=False,
                    include_cluster_authorized_operations=version <= 10,
                    include_topic_authorized_operations=True,
                ),
                version=version,
            )
        )
        assert penstock == kafka, version
    for wanted in (True, False):
        request = DescribeClusterRequest(include_cluster_authorized_operations=wanted)
        kafka, penstock = both.each(partial(operations_told, request=request, version=2))
        assert penstock == kafka


def operations_told(server: ServerProcess, *, request: Message, version: int) -> tuple[int, dict[str | None, int]]:
    """What the client may do with the cluster and with each topic."""
    answer = ask(server, request, version)
    assert isinstance(answer, MetadataResponse | DescribeClusterResponse)
    topics = answer.topics if isinstance(answer, MetadataResponse) else []
    return answer.cluster_authorized_operations, {one.name: one.topic_authorized_operations for one in topics}


def test_tools_say_what_they_say_of_kafka(both: Both, name: str) -> None:
    both.same("kafka-topics", "--create", "--topic", name)
    acl = ("--allow-principal", "User:a", "--operation", "Read", "--topic", name)
    for acls in (("--list",), ("--add", *acl), ("--remove", "--force", *acl)):
        assert "No Authorizer is configured" in both.same("kafka-acls", *acls).output
    token = ("--command-config", "/dev/null")
    for command in (
        ("--create", "--max-life-time-period", "-1"),
        ("--describe",),
        ("--renew", "--renew-time-period", "-1", "--hmac", "AAAA"),
        ("--expire", "--expiry-time-period", "-1", "--hmac", "AAAA"),
    ):
        assert "not allowed on PLAINTEXT" in both.same("kafka-delegation-tokens", *command, *token).errors
    assert both.same("kafka-transactions", "list").code == 0
    partition = ("--topic", name, "--partition", "0")
    for transactions in (
        ("describe-producers", *partition),
        ("find-hanging", "--broker-id", "1"),
        ("find-hanging", *partition),
        ("abort", *partition, "--start-offset", "0"),
    ):
        both.same("kafka-transactions", *transactions)
    for groups in (("kafka-share-groups", "--list"), ("kafka-streams-groups", "--list"), ("kafka-groups", "--list")):
        both.same_about(name, *groups)


def test_idempotent_producers_are_described(both: Both, name: str) -> None:
    both.same("kafka-topics", "--create", "--topic", name)
    for server in (both.kafka, both.penstock):
        produce(server.bootstrap, name, "a", "b", "c", partition=0)
    request = DescribeProducersRequest(
        topics=[TopicRequest(name=name, partition_indexes=[0, 1]), TopicRequest(name="nowhere", partition_indexes=[0])]
    )
    kafka, penstock = both.each(lambda server: ask(server, request, 0))
    for answer in (kafka, penstock):
        for partition in (one for topic in answer.topics for one in topic.partitions):  # type: ignore[attr-defined]
            partition.error_message = None
            for producer in partition.active_producers:
                # Ids differ, and so does the moment; whether the client was idempotent is its own affair.
                producer.producer_id, producer.last_timestamp = 0, 0
    assert penstock == kafka


@pytest.mark.parametrize(
    ("entity", "setting", "reason"),
    [
        ("broker-loggers --entity-name 1", "nothing=DEBUG", "nothing"),
        ("brokers --entity-name 1", "sasl.jaas.config=x", "it cannot change at run time"),
    ],
)
def test_what_would_have_no_effect_is_refused_with_the_reason(
    both: Both, entity: str, setting: str, reason: str
) -> None:
    said = both.run(
        both.penstock, "kafka-configs", "--alter", "--entity-type", *entity.split(), "--add-config", setting
    )
    assert said.code == 1
    assert reason in said.errors


def test_scram_credentials_are_set_described_and_removed(both: Both) -> None:
    user = ("--entity-type", "users", "--entity-name", "alice")
    both.same("kafka-configs", "--alter", *user, "--add-config", "SCRAM-SHA-256=[iterations=4096,password=secret]")
    both.same("kafka-configs", "--describe", *user)
    both.same("kafka-configs", "--alter", *user, "--delete-config", "SCRAM-SHA-256")
    both.same("kafka-configs", "--describe", *user)


def test_tools_for_groups_that_are_not_served_say_so(both: Both, name: str) -> None:
    both.run(both.penstock, "kafka-topics", "--create", "--topic", name)
    group = ("--group", name)
    for tool, *arguments in (
        ("kafka-share-groups", "--describe", *group),
        ("kafka-share-groups", "--describe", "--members", *group),
        ("kafka-share-groups", "--delete-offsets", *group, "--topic", name),
        ("kafka-share-groups", "--reset-offsets", *group, "--topic", name, "--to-earliest", "--execute"),
        ("kafka-streams-groups", "--describe", *group),
        ("kafka-streams-groups", "--reset-offsets", *group, "--input-topic", name, "--to-earliest", "--dry-run"),
    ):
        said = both.run(both.penstock, tool, *arguments)
        assert NOT_SUPPORTED in said.output + said.errors, (tool, arguments)


def test_features_are_raised_to_the_level_in_force_and_no_further(both: Both) -> None:
    said = both.run(both.penstock, "kafka-features", "describe").output
    for line in said.splitlines():
        words = line.split()
        low, high, level = words[3], words[5], words[7]
        assert low <= level <= high, line
    for feature in ("group.version=1", "kraft.version=1", "eligible.leader.replicas.version=0"):
        upgraded = both.run(both.penstock, "kafka-features", "downgrade", "--feature", feature)
        assert upgraded.code == 0, upgraded
    both.run(both.penstock, "kafka-features", "upgrade", "--feature", "eligible.leader.replicas.version=1")
    for step, feature, reason in (
        ("downgrade", "group.version=0", "only supports versions 1-1"),
        ("downgrade", "kraft.version=0", "only supports versions 1-1"),
        ("upgrade", "transaction.version=3", "only supports versions 0-2"),
        ("upgrade", "share.version=1", "does not support this feature"),
    ):
        refused = both.run(both.penstock, "kafka-features", step, "--feature", feature)
        assert refused.code == 1
        assert reason in refused.output
    both.refused("kafka-features", "upgrade", "--feature", "no.such=1")


def test_runbooks_set_what_has_no_effect_here(both: Both) -> None:
    for which, settings in (
        (("--entity-name", "1"), "log.cleaner.threads=2,background.threads=11,num.replica.fetchers=2,num.io.threads=9"),
        (("--entity-default",), "log.cleaner.threads=2,num.network.threads=4,remote.log.reader.threads=9"),
    ):
        entity = ("--entity-type", "brokers", *which)
        assert both.same("kafka-configs", "--alter", *entity, "--add-config", settings).code == 0
        name = settings.split(",")[-1]
        both.wait_for(f"{name} sensitive=false", "kafka-configs", "--describe", *entity)
        both.same("kafka-configs", "--describe", *entity)
        names = ",".join(one.split("=")[0] for one in settings.split(","))
        assert both.same("kafka-configs", "--alter", *entity, "--delete-config", names).code == 0
