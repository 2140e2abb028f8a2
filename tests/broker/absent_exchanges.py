"""What is answered to requests for features that are not there, in every version. The words are Kafka's.

`tests/tools_of_kafka/test_absent_features.py` sends the same requests to Apache Kafka and compares.
"""

from __future__ import annotations

from typing import Any

from broker.session import Session, batch, produce_request
from penstock.wire.apis import ApiKey
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from penstock.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from penstock.wire.messages.create_acls import AclCreation, CreateAclsRequest
from penstock.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from penstock.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from penstock.wire.messages.describe_acls import DescribeAclsRequest
from penstock.wire.messages.describe_delegation_token import DescribeDelegationTokenRequest
from penstock.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from penstock.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from penstock.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from penstock.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from penstock.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock.wire.messages.sasl_handshake import SaslHandshakeRequest

DATA_DIRECTORY = "simulated"
REFUSED_TOKEN = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


async def describe_acls(s: Session, version: int, topic_id: bytes) -> None:
    answer = await s.call(DescribeAclsRequest(), version)
    assert (answer.error_code, answer.resources) == (ErrorCode.SECURITY_DISABLED, [])
    assert answer.error_message == "No Authorizer is configured on the broker"


async def create_acls(s: Session, version: int, topic_id: bytes) -> None:
    creations = [AclCreation(resource_type=2, resource_name=name, principal="User:a", host="*") for name in "tu"]
    answer = await s.call(CreateAclsRequest(creations=creations), version)
    assert [(one.error_code, one.error_message) for one in answer.results] == [
        (ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    ] * 2
    assert (await s.call(CreateAclsRequest(), version)).results == []


async def delete_acls(s: Session, version: int, topic_id: bytes) -> None:
    answer = await s.call(DeleteAclsRequest(filters=[DeleteAclsFilter()]), version)
    (result,) = answer.filter_results
    assert (result.error_code, result.matching_acls) == (ErrorCode.SECURITY_DISABLED, [])
    assert result.error_message == "No Authorizer is configured."


async def sasl_handshake(s: Session, version: int, topic_id: bytes) -> None:
    answer = await s.call(SaslHandshakeRequest(mechanism="PLAIN"), version)
    assert (answer.error_code, answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])


async def sasl_authenticate(s: Session, version: int, topic_id: bytes) -> None:
    answer = await s.call(SaslAuthenticateRequest(auth_bytes=b"\0alice\0hunter2"), version)
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert "security.protocol=PLAINTEXT" in answer.error_message


async def create_delegation_token(s: Session, version: int, topic_id: bytes) -> None:
    answer = await s.call(CreateDelegationTokenRequest(max_lifetime_ms=-1), version)
    assert (answer.error_code, answer.principal_type, answer.principal_name) == (REFUSED_TOKEN, "User", "ANONYMOUS")
    assert (answer.token_id, answer.hmac, answer.expiry_timestamp_ms) == ("", b"", -1)


async def renew_delegation_token(s: Session, version: int, topic_id: bytes) -> None:
    answer = await s.call(RenewDelegationTokenRequest(hmac=b"x"), version)
    assert (answer.error_code, answer.expiry_timestamp_ms) == (REFUSED_TOKEN, -1)


async def expire_delegation_token(s: Session, version: int, topic_id: bytes) -> None:
    answer = await s.call(ExpireDelegationTokenRequest(hmac=b"x"), version)
    assert (answer.error_code, answer.expiry_timestamp_ms) == (REFUSED_TOKEN, -1)


async def describe_delegation_token(s: Session, version: int, topic_id: bytes) -> None:
    owners: Any
    for owners in (None, []):
        answer = await s.call(DescribeDelegationTokenRequest(owners=owners), version)
        assert (answer.error_code, answer.tokens) == (REFUSED_TOKEN, [])


async def describe_user_scram_credentials(s: Session, version: int, topic_id: bytes) -> None:
    nobody: Any
    for nobody in (None, []):
        answer = await s.call(DescribeUserScramCredentialsRequest(users=nobody), version)
        assert (answer.error_code, answer.results) == (0, [])
    users = [UserName(name=name) for name in ("bob", "eve", "bob")]
    answer = await s.call(DescribeUserScramCredentialsRequest(users=users), version)
    assert [(one.user, one.error_code) for one in answer.results] == [
        ("bob", ErrorCode.DUPLICATE_RESOURCE),
        ("eve", ErrorCode.RESOURCE_NOT_FOUND),
    ]


async def alter_user_scram_credentials(s: Session, version: int, topic_id: bytes) -> None:
    request = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name=name, mechanism=1) for name in ("bob", "")],
        upsertions=[ScramCredentialUpsertion(name=name, mechanism=1, iterations=4096) for name in ("eve", "bob")],
    )
    answer = await s.call(request, version)
    assert {one.user: one.error_code for one in answer.results} == {
        "bob": ErrorCode.DUPLICATE_RESOURCE,
        "eve": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "": ErrorCode.UNACCEPTABLE_CREDENTIAL,
    }
    assert all(one.error_message for one in answer.results)


async def describe_producers(s: Session, version: int, topic_id: bytes) -> None:
    producer = await s.producer_id()
    data = batch(b"x", b"y", producer_id=producer, epoch=0, sequence=0)
    (written,) = (await s.call(produce_request("t", data), 9)).responses[0].partition_responses
    assert written.error_code == 0
    topics = [
        TopicRequest(name="t", partition_indexes=[0, 1, 7, 0]),
        TopicRequest(name="nowhere", partition_indexes=[0]),
    ]
    known, unknown = (await s.call(DescribeProducersRequest(topics=topics), version)).topics
    first, second, third = known.partitions
    (active,) = first.active_producers
    assert (active.producer_id, active.producer_epoch, active.last_sequence) == (producer, 0, 1)
    assert (active.coordinator_epoch, active.current_txn_start_offset) == (-1, -1)
    assert 0 <= s.runtime.wall_ms() - active.last_timestamp < 1_000
    assert (second.error_code, second.active_producers) == (0, [])
    assert third.error_code == unknown.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def alter_replica_log_dirs(s: Session, version: int, topic_id: bytes) -> None:
    def moved(path: str) -> AlterReplicaLogDirsRequest:
        topics = [
            AlterReplicaLogDirTopic(name=name, partitions=partitions)
            for name, partitions in (("t", [0, 7]), ("nowhere", [0]))
        ]
        return AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=topics)])

    for path, here, elsewhere in (
        (DATA_DIRECTORY, ErrorCode.NONE, ErrorCode.REPLICA_NOT_AVAILABLE),
        ("/other", ErrorCode.LOG_DIR_NOT_FOUND, ErrorCode.LOG_DIR_NOT_FOUND),
    ):
        answer = await s.call(moved(path), version)
        found = [
            (topic.topic_name, partition.partition_index, partition.error_code)
            for topic in answer.results
            for partition in topic.partitions
        ]
        assert found == [("t", 0, here), ("t", 7, elsewhere), ("nowhere", 0, elsewhere)]


ABSENT_EXCHANGES = {
    ApiKey.SASL_HANDSHAKE: sasl_handshake,
    ApiKey.DESCRIBE_ACLS: describe_acls,
    ApiKey.CREATE_ACLS: create_acls,
    ApiKey.DELETE_ACLS: delete_acls,
    ApiKey.ALTER_REPLICA_LOG_DIRS: alter_replica_log_dirs,
    ApiKey.SASL_AUTHENTICATE: sasl_authenticate,
    ApiKey.CREATE_DELEGATION_TOKEN: create_delegation_token,
    ApiKey.RENEW_DELEGATION_TOKEN: renew_delegation_token,
    ApiKey.EXPIRE_DELEGATION_TOKEN: expire_delegation_token,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: describe_delegation_token,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: describe_user_scram_credentials,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: alter_user_scram_credentials,
    ApiKey.DESCRIBE_PRODUCERS: describe_producers,
}
