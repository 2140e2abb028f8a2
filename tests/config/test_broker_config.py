"""How a broker's settings are resolved, checked and changed."""

from __future__ import annotations

import pytest

from penstock.config import (
    INERT,
    BrokerConfig,
    ConfigError,
    ConfigSource,
    Definition,
    Endpoint,
    Kind,
    TopicConfig,
    describe_broker,
    listener_of,
    parse_properties,
    validate_broker_config,
    validate_broker_configs,
)
from penstock.config.definitions import render
from penstock.wire.errors import ErrorCode, KafkaError

# What Kafka 4 ships as config/server.properties, its comments left out.
STOCK_SERVER_PROPERTIES = r"""
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,\
  SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def problems_of(static: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.resolve(static)
    return "\n".join(refused.value.problems)


def test_nothing_needs_to_be_set() -> None:
    config = BrokerConfig.resolve({})
    assert config.warnings == ()
    assert config.listeners == (Endpoint("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT"),)
    assert config.advertised_listeners == config.listeners
    assert config.message_max_bytes == 1_048_588
    assert config.log_retention_ms == 7 * 24 * 3_600_000
    assert config.log_flush_interval_ms == 2**63 - 1


def test_the_file_that_kafka_ships_starts_this_broker() -> None:
    config = BrokerConfig.resolve(parse_properties(STOCK_SERVER_PROPERTIES))
    assert config.listeners == (Endpoint("PLAINTEXT", "", 9092, "PLAINTEXT"),)
    assert config.controller_listeners == (Endpoint("CONTROLLER", "", 9093, "PLAINTEXT"),)
    assert config.advertised_listeners == (Endpoint("PLAINTEXT", "localhost", 9092, "PLAINTEXT"),)
    assert config.log_dir == "kraft-combined-logs"
    assert config.warnings == ()


def test_all_problems_are_reported_together() -> None:
    problems = problems_of({"num.partitions": "0", "log.segment.bytes": "12k", "delete.topic.enable": "yes"})
    assert "num.partitions=0: must be 1 or more" in problems
    assert "log.segment.bytes=12k: must be a whole number" in problems
    assert "delete.topic.enable=yes: must be true or false" in problems


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("num.partitions", "1_000", "whole number"),
        ("num.partitions", "١", "whole number"),
        ("num.partitions", "2147483648", "between"),
        ("num.partitions", "", "whole number"),
        ("log.segment.bytes", "1048575", "1048576 or more"),
        ("log.retention.ms", "0", "-1, or 1 or more"),
        ("compression.type", "brotli", "one of producer"),
        ("compression.gzip.level", "0", "-1, or between 1 and 9"),
        ("log.cleanup.policy", "shrink", "delete, compact or both"),
        ("log.cleaner.min.cleanable.ratio", "1.5", "between 0 and 1"),
        ("log.cleaner.min.compaction.lag.ms", "9223372036854775808", "whole number"),
        ("log.cleanup.policy", "delete,delete", "delete"),
        ("log.message.timestamp.type", "createtime", "one of CreateTime"),
        ("log.dirs", "a,b", "--brokers 2"),
        ("log.dirs", "", "at least one"),
        ("process.roles", "broker", "needs controllers on other nodes"),
        ("process.roles", "observer", "distinct values"),
        ("listeners", "127.0.0.1:9092", "NAME://HOST:PORT"),
        ("listeners", "PLAINTEXT://127.0.0.1", "HOST:PORT"),
        ("listeners", "PLAINTEXT://::1:9092", "brackets"),
        ("listeners", "PLAINTEXT://a:1,PLAINTEXT://b:2", "more than once"),
        ("listeners", "SSL://127.0.0.1:9093", "needs a certificate"),
        ("listeners", "INTERNAL://127.0.0.1:9093", "add INTERNAL:PLAINTEXT"),
        ("advertised.listeners", "PLAINTEXT://0.0.0.0:9092", "clients cannot connect"),
        ("advertised.listeners", "SASL_SSL://a:9092", "not in listeners"),
        ("inter.broker.listener.name", "OTHER", "not one of"),
        ("controller.quorum.voters", "1@a:9093,2@b:9093", "CONTROLLER://HOST:PORT"),
        ("controller.quorum.voters", "2@b:9093,3@c:9093", "does not name this node"),
        ("controller.quorum.voters", "1@a:9093,1@b:9093", "names node 1 twice"),
        ("controller.quorum.voters", "one@a:9093", "is not ID@HOST:PORT"),
        ("controller.quorum.voters", "1@:9093", "need a host and a port"),
        ("controller.quorum.bootstrap.servers", "a:9093,b:9093", "CONTROLLER://HOST:PORT"),
        ("max.connections.per.ip.overrides", "127.0.0.1", "ADDRESS:COUNT"),
        ("max.connections.per.ip", "0", "refuse everyone"),
        ("queued.max.request.bytes", "1000", "could never be read"),
        ("replica.lag.time.max.ms", "100", "leave the ISR"),
        ("broker.id", "-1", "0 or more"),
        ("group.share.max.size", "10", "share groups are not supported yet"),
        ("authorizer.class.name", "org.example.Authorizer", "StandardAuthorizer"),
        ("super.users", "admin", "such as User:admin"),
        ("remote.log.storage.system.enable", "true", "tiered storage"),
        ("listener.name.plaintext.message.max.bytes", "5", "set it for the whole broker"),
        ("listener.name.plaintext.max.connections", "many", "must be a number"),
        ("listener.name.other.max.connections", "5", "there is no listener OTHER"),
        ("metadata.log.dir", "elsewhere", "in the data directory"),
    ],
)
def test_unsupported_settings_are_refused_with_the_reason(name: str, text: str, told: str) -> None:
    problems = problems_of({name: text})
    assert told in problems
    assert name in problems


def test_a_refusal_does_not_repeat_a_password() -> None:
    assert "hunter2" not in problems_of({"ssl.keystore.password": "hunter2"})


def test_two_different_ids_are_refused() -> None:
    assert "set only node.id" in problems_of({"node.id": "1", "broker.id": "2"})
    assert BrokerConfig.resolve({"broker.id": "7"}).node_id == 7


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("group.max.size", "2147483647"),
        ("num.network.threads", "1"),
        ("transaction.partition.verification.enable", "TRUE"),
        ("log.cleaner.min.cleanable.ratio", "0.50"),
        ("log.cleaner.io.max.bytes.per.second", "1.7976931348623157E308"),
        ("ssl.enabled.protocols", "TLSv1.2, TLSv1.3"),
        ("authorizer.class.name", ""),
        ("offsets.topic.replication.factor", "3"),
        ("process.roles", "controller, broker"),
        ("controller.quorum.voters", "1@localhost:9093"),
    ],
)
def test_defaults_of_unsupported_properties_are_accepted(name: str, text: str) -> None:
    assert BrokerConfig.resolve({name: text}).warnings == ()


def test_properties_without_effect_cause_a_warning_that_names_the_alternative() -> None:
    (warning,) = BrokerConfig.resolve({"queued.max.requests": "10"}).warnings
    assert warning == "queued.max.requests has no effect here: set queued.max.request.bytes"


def test_an_unknown_name_is_a_warning_that_helps() -> None:
    (warning,) = BrokerConfig.resolve({"num.partition": "3"}).warnings
    assert "did you mean num.partitions?" in warning
    (warning,) = BrokerConfig.resolve({"my.own": "3"}).warnings
    assert "my.own" in warning


@pytest.mark.parametrize(
    ("static", "retention_ms"),
    [
        ({"log.retention.ms": "5", "log.retention.minutes": "1", "log.retention.hours": "1"}, 5),
        ({"log.retention.minutes": "2", "log.retention.hours": "1"}, 120_000),
        ({"log.retention.hours": "1"}, 3_600_000),
        ({"log.retention.minutes": "-1"}, -1),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_the_finest_unit_that_is_set_counts(static: dict[str, str], retention_ms: int) -> None:
    config = BrokerConfig.resolve(static)
    assert config.log_retention_ms == retention_ms
    assert config.topic_defaults.retention_ms == retention_ms


def test_roll_and_flush_have_fallbacks_too() -> None:
    config = BrokerConfig.resolve(
        {"log.roll.hours": "2", "log.roll.jitter.hours": "1", "log.flush.scheduler.interval.ms": "50"}
    )
    assert (config.log_roll_ms, config.log_roll_jitter_ms) == (7_200_000, 3_600_000)
    assert config.log_flush_interval_ms == config.topic_defaults.flush_ms == 50


def test_listeners_with_names_and_ipv6() -> None:
    config = BrokerConfig.resolve(
        {
            "listeners": "internal://[::1]:9092, OUTER://:0",
            "advertised.listeners": "OUTER://broker.example:19092",
            "listener.security.protocol.map": "INTERNAL:PLAINTEXT,OUTER:PLAINTEXT",
        }
    )
    assert [str(endpoint) for endpoint in config.listeners] == ["INTERNAL://[::1]:9092", "OUTER://:0"]
    assert [str(endpoint) for endpoint in config.advertised_listeners] == ["OUTER://broker.example:19092"]
    assert config.inter_broker_listener_name == "OUTER"


def test_a_controller_listener_needs_no_entry_in_the_map_unless_there_is_one() -> None:
    static = {"listeners": "PLAINTEXT://:9092,QUORUM://:9093", "controller.listener.names": "QUORUM"}
    assert [e.name for e in BrokerConfig.resolve(static).controller_listeners] == ["QUORUM"]
    assert "QUORUM:PLAINTEXT" in problems_of({**static, "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"})
    assert "only controller listeners" in problems_of({**static, "listeners": "QUORUM://:9093"})


def test_overrides_of_connection_limits() -> None:
    config = BrokerConfig.resolve(
        {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:200, [::1]:7"}
    )
    assert config.max_connections_per_ip_overrides == {"127.0.0.1": 200, "::1": 7}


def test_the_address_of_the_command_line_becomes_a_listener() -> None:
    assert listener_of("127.0.0.1:9092") == "PLAINTEXT://127.0.0.1:9092"
    assert listener_of("[::1]:0") == "PLAINTEXT://[::1]:0"
    with pytest.raises(ValueError, match="HOST:PORT"):
        listener_of("localhost")


def test_settings_at_run_time_win_over_static_ones_and_the_brokers_own_over_the_clusters() -> None:
    static = {"log.retention.ms": "1", "message.max.bytes": "1", "log.segment.delete.delay.ms": "1"}
    config = BrokerConfig.resolve(
        static, {"log.retention.ms": "2", "message.max.bytes": "2"}, {"log.retention.ms": "3"}
    )
    assert (config.log_retention_ms, config.message_max_bytes, config.log_segment_delete_delay_ms) == (3, 2, 1)


def test_a_change_makes_a_new_config_and_says_what_changed() -> None:
    before = BrokerConfig.resolve({"num.partitions": "4"})
    after = before.with_dynamic({"message.max.bytes": "5", "min.insync.replicas": "1"}, {"max.connections": "9"})
    assert after.changed_since(before) == ("max.connections", "message.max.bytes")
    assert (after.num_partitions, after.max_connections, before.message_max_bytes) == (4, 9, 1_048_588)
    assert after.topic_defaults.max_message_bytes == 5
    assert after.with_dynamic({}, {}).changed_since(before) == ()


def test_a_stored_dynamic_setting_that_no_longer_passes_does_not_stop_the_broker() -> None:
    config = BrokerConfig.resolve({}, {"message.max.bytes": "much"}, {"num.partitions": "9", "no.such": "1"})
    assert config.message_max_bytes == 1_048_588
    assert config.num_partitions == 1
    assert len(config.warnings) == 3


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("num.partitions", "3", "cannot change at run time"),
        ("message.max.bytes", "-1", "0 or more"),
        ("message.max.bytes", None, "needs a value"),
        ("log.cleaner.threads", "-3", "0 or more"),
        ("queued.max.requests", "3", "cannot change at run time, and has no effect here"),
        ("quota.window.num", "3", "cannot change at run time"),
        ("no.such", "3", "no such broker property"),
        ("log.cleaner.thread", "3", "did you mean log.cleaner.threads?"),
        ("listener.name.plaintext.max.connections", "3", "cannot change at run time"),
        ("listener.name.plaintext.num.partitions", "3", "settings for a single listener are not supported yet"),
        ("listener.name.plaintext.ssl.keystore.location", "/x", "cannot change at run time"),
    ],
)
def test_dynamic_settings_are_checked_when_they_are_made(name: str, text: str | None, told: str) -> None:
    with pytest.raises(KafkaError, match=told) as refused:
        validate_broker_config(name, text, per_broker=True)
    assert refused.value.code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("name", ["ssl.keystore.password", "sasl.jaas.config", "ssl.keystore.key"])
def test_security_settings_are_refused_and_their_values_not_repeated(name: str) -> None:
    with pytest.raises(KafkaError, match=r"not supported yet|cannot change at run time") as refused:
        validate_broker_config(name, "hunter2", per_broker=True)
    assert "hunter2" not in refused.value.message


@pytest.mark.parametrize("definition", INERT.values(), ids=lambda definition: definition.name)
def test_a_setting_without_effect_is_accepted_at_every_level_and_reported(definition: Definition) -> None:
    name = definition.name
    other = {
        Kind.BOOLEAN: "false" if definition.default else "true",
        Kind.STRING: "other",
        Kind.LIST: "other",
        Kind.DOUBLE: "0.5",
    }.get(definition.kind, "1048577" if "buffer.max.bytes" in name else "7")
    default = render(definition.default)
    assert BrokerConfig.resolve({} if default is None else {name: default}).warnings == (), "it asks for nothing"
    (warning,) = BrokerConfig.resolve({name: other}).warnings
    assert warning == f"{name} has no effect here: {definition.no_effect}"
    validate_broker_config(name, other, per_broker=True)
    config = BrokerConfig.resolve({}, {}, {name: other})
    assert config.warnings == (f"the run-time setting {name} has no effect here: {definition.no_effect}",)
    (described,) = (one for one in describe_broker(config) if one.name == name)
    assert (described.value, described.read_only) == (other, False)
    assert described.source == ConfigSource.DYNAMIC_BROKER_CONFIG
    assert described.documentation == f"No effect here: {definition.no_effect}."


def test_one_network_thread_needs_no_warning() -> None:
    assert BrokerConfig.resolve({"num.network.threads": "1"}).warnings == ()
    (warning,) = BrokerConfig.resolve({"num.network.threads": "8"}).warnings
    assert "--brokers" in warning


def test_dynamic_settings_are_checked_together_with_the_rest() -> None:
    config = BrokerConfig.resolve({})
    with pytest.raises(KafkaError, match="refuse everyone"):
        validate_broker_configs({"max.connections.per.ip": "0"}, config, per_broker=False)
    good = {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:5"}
    validate_broker_configs(good, config, per_broker=True)


def test_topics_without_settings_share_one_config() -> None:
    config = BrokerConfig.resolve({})
    assert TopicConfig.resolve({}, config) is config.topic_defaults
