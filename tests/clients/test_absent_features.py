"""What clients say that want a feature which is not there: they fail with the reason, and the connection stays."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from kafka.admin import (
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePatternFilter,
    ResourceType,
)
from kafka.errors import SecurityDisabledError

from support.penstock import PenstockServer
from support.waiting import wait_until

PASSWORD = "hunter2-of-the-tests"


@pytest.mark.filterwarnings("ignore")
def test_kafka_python_is_told_that_there_are_no_acls(bootstrap: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    every = ACLFilter(
        principal=None,
        host=None,
        operation=ACLOperation.ANY,
        permission_type=ACLPermissionType.ANY,
        resource_pattern=ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY),
    )
    with pytest.raises(SecurityDisabledError, match="No Authorizer is configured"):
        admin.describe_acls(every)
    assert admin.describe_cluster()["cluster_id"], "the same connection goes on"
    admin.close()


def test_librdkafka_finds_no_scram_credentials(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    assert admin.describe_user_scram_credentials().result(30) == {}
    (described,) = admin.describe_user_scram_credentials(["alice"]).values()
    with pytest.raises(Exception, match="credential that does not exist: alice"):
        described.result(30)


def test_a_client_with_a_password_fails_to_log_in_and_its_password_is_not_logged(server: PenstockServer) -> None:
    errors: list[KafkaError] = []
    producer = Producer(
        {
            "bootstrap.servers": server.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": PASSWORD,
            "error_cb": errors.append,
            "log_level": 0,
        }
    )

    def failed_to_log_in() -> bool:
        producer.poll(0.1)
        return any(error.code() == KafkaError._AUTHENTICATION for error in errors)

    wait_until(failed_to_log_in)
    assert PASSWORD not in server.log_tail()
