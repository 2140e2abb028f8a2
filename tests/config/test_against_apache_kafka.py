"""The property tables match what a real Kafka describes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigEntry, ConfigResource, NewTopic

from penstock.config import (
    NOT_YET,
    SETTABLE,
    TOPIC,
    BrokerConfig,
    ConfigSource,
    UpdateMode,
    describe_topic,
    validate_broker_config,
)
from penstock.config.definitions import render
from penstock.config.unserved import WITHOUT_MEANING, refusal
from penstock.wire.errors import KafkaError
from support.apache_kafka import SHORT_LIVED, ApacheKafka, available

pytestmark = [pytest.mark.needs_maven, pytest.mark.xdist_group("settings of Apache Kafka")]

TOPIC_NAME = "settings"
OVERRIDES = {"retention.ms": "5", "flush.messages": "1"}

OUR_OWN = "penstock."
"""Properties that Kafka does not have."""

# Kafka knows these of brokers that have them, and describes them of no other.
SET_AT_RUN_TIME_ONLY = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)

REMOVED_FROM_KAFKA = ("quota.producer.default", "quota.consumer.default")
# Kafka's authorizer reads these itself, so its broker does not describe them.
OF_THE_AUTHORIZER = ("super.users", "allow.everyone.if.no.acl.found")

# Kafka changes these at run time. Here they would promise protection that is not there, place data where it cannot go,
# load Java classes, or open another listener.
REFUSED_AT_RUN_TIME = {
    "config.providers", "cordoned.log.dirs", "listener.security.protocol.map", "listeners", "principal.builder.class",
    "sasl.enabled.mechanisms", "sasl.jaas.config", "sasl.mechanism.inter.broker.protocol", "ssl.cipher.suites",
    "ssl.client.auth", "ssl.enabled.protocols", "ssl.endpoint.identification.algorithm", "ssl.engine.factory.class",
    "ssl.key.password", "ssl.keymanager.algorithm", "ssl.keystore.certificate.chain", "ssl.keystore.key",
    "ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.type", "ssl.protocol", "ssl.provider",
    "ssl.secure.random.implementation", "ssl.trustmanager.algorithm", "ssl.truststore.certificates",
    "ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.type",
}  # fmt: skip


@pytest.fixture(scope="module")
def admin() -> Iterator[AdminClient]:
    if reason := available():
        pytest.skip(reason)
    with ApacheKafka(heap="256M", jvm_flags=SHORT_LIVED) as kafka:
        client = AdminClient({"bootstrap.servers": kafka.bootstrap})
        client.create_topics([NewTopic(TOPIC_NAME, 1, 1, config=OVERRIDES)])[TOPIC_NAME].result(30)
        yield client


def described(admin: AdminClient, kind: Any, name: str) -> dict[str, ConfigEntry]:
    (future,) = admin.describe_configs([ConfigResource(kind, name)]).values()
    configs: dict[str, ConfigEntry] = future.result(30)
    return configs


def default_of(entry: Any) -> str | None:
    if entry.source == ConfigSource.DEFAULT_CONFIG:
        value: str | None = entry.value
        return value
    defaults = [synonym.value for synonym in entry.synonyms.values() if synonym.source == ConfigSource.DEFAULT_CONFIG]
    return defaults[0] if defaults else None


def test_broker_properties_are_kafkas(admin: AdminClient) -> None:
    theirs = described(admin, ConfigResource.Type.BROKER, "1")
    for name, definition in SETTABLE.items():
        elsewhere = (*SET_AT_RUN_TIME_ONLY, *OF_THE_AUTHORIZER, *REMOVED_FROM_KAFKA)
        if definition.hidden or name in elsewhere or name.startswith(OUR_OWN):
            continue
        entry = theirs[name]
        if definition.kafka_default is None:
            assert (default_of(entry) or None) == (render(definition.default) or None), name
        assert definition.sensitive == entry.is_sensitive, name
        if entry.is_read_only:
            assert definition.mode is UpdateMode.READ_ONLY, name


def test_every_kafka_property_is_in_a_table(admin: AdminClient) -> None:
    for name, entry in described(admin, ConfigResource.Type.BROKER, "1").items():
        assert name in SETTABLE or name in WITHOUT_MEANING or name in NOT_YET or name == "broker.id", name
        if name in NOT_YET:
            assert refusal(name, default_of(entry) or "") is None, name


def test_properties_that_kafka_changes_at_run_time_change_here_or_are_refused_with_a_reason(admin: AdminClient) -> None:
    theirs = described(admin, ConfigResource.Type.BROKER, "1")
    dynamic = {name for name, entry in theirs.items() if not entry.is_read_only}
    assert len(dynamic) > 90
    ours = {name for name, definition in SETTABLE.items() if definition.mode is not UpdateMode.READ_ONLY}
    assert dynamic - ours == REFUSED_AT_RUN_TIME
    for name in REFUSED_AT_RUN_TIME:
        with pytest.raises(KafkaError) as refused:
            validate_broker_config(name, default_of(theirs[name]) or "x", per_broker=True)
        assert "no such broker property" not in refused.value.message


def test_topics_are_described_as_kafka_describes_them(admin: AdminClient) -> None:
    theirs = described(admin, ConfigResource.Type.TOPIC, TOPIC_NAME)
    ours = {config.name: config for config in describe_topic(OVERRIDES, BrokerConfig.resolve({}))}
    assert sorted(ours) == sorted(name for name in TOPIC if not TOPIC[name].hidden)
    assert sorted(theirs) == sorted(name for name in ours if not name.startswith(OUR_OWN))
    for name, entry in theirs.items():
        config = ours[name]
        assert (config.value, config.read_only) == (entry.value, entry.is_read_only), name
        if name != "min.insync.replicas":
            # Kafka sets this one for the whole cluster by itself, when it begins to track eligible leader replicas.
            source: Any = entry.source  # a number, or with some versions of the library a member of an enumeration
            assert int(config.source) == getattr(source, "value", source), name
        assert [synonym.name for synonym in config.synonyms] == list(entry.synonyms), name
