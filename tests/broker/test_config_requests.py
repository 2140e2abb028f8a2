"""Settings as clients read and change them. What they do is in `test_retention_and_configs.py`."""

from __future__ import annotations

from typing import Any

import pytest

from broker.session import BROKER, TOPIC, Session, simulated
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.alter_configs import AlterableConfig as ReplacedConfig
from penstock.wire.messages.alter_configs import AlterConfigsRequest
from penstock.wire.messages.alter_configs import AlterConfigsResource as ReplacedResource
from penstock.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.wire.messages.list_config_resources import ListConfigResourcesRequest

BROKER_LOGGER, CLIENT_METRICS, GROUP = 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
DYNAMIC_TOPIC, DYNAMIC_BROKER, DYNAMIC_DEFAULT, STATIC, DEFAULT, DYNAMIC_LOGGER = 1, 2, 3, 4, 5, 6


async def described(s: Session, kind: int, name: str, **options: Any) -> dict[str, Any]:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    (result,) = (await s.call(DescribeConfigsRequest(resources=[resource], **options))).results
    assert result.error_code == 0, result.error_message
    return {config.name: config for config in result.configs}


async def altered(s: Session, kind: int, name: str, *changes: tuple[str, int, str | None]) -> Any:
    configs = [AlterableConfig(name=key, config_operation=operation, value=value) for key, operation, value in changes]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    (result,) = (await s.call(IncrementalAlterConfigsRequest(resources=[resource]))).responses
    assert bool(result.error_message) == bool(result.error_code), "an error says what is wrong"
    return result


# ---- DescribeConfigs


@simulated({"log.retention.hours": "5", "log.segment.bytes": "2000000"})
async def test_a_value_says_where_it_comes_from(s: Session) -> None:
    await s.create("t", max_message_bytes="5000")
    configs = await described(s, TOPIC, "t", include_synonyms=True)
    own = configs["max.message.bytes"]
    assert (own.value, own.config_source) == ("5000", DYNAMIC_TOPIC)
    assert [(one.name, one.source) for one in own.synonyms] == [
        ("max.message.bytes", DYNAMIC_TOPIC),
        ("message.max.bytes", DEFAULT),
    ]
    static = configs["segment.bytes"]
    assert (static.value, static.config_source) == ("2000000", STATIC)
    assert configs["retention.ms"].value == str(5 * 3_600_000)
    assert (configs["flush.ms"].config_source, configs["flush.ms"].read_only) == (DEFAULT, False)
    broker = await described(s, BROKER, "1")
    assert (broker["log.segment.bytes"].value, broker["log.segment.bytes"].config_source) == ("2000000", STATIC)


@simulated()
async def test_only_the_keys_that_were_asked_for_are_told(s: Session) -> None:
    await s.create("t")
    keys = ["retention.ms", "no.such.key"]
    resource = DescribeConfigsResource(resource_type=TOPIC, resource_name="t", configuration_keys=keys)
    (result,) = (await s.call(DescribeConfigsRequest(resources=[resource]))).results
    assert [config.name for config in result.configs] == ["retention.ms"]
    assert result.configs[0].synonyms == []
    assert not result.configs[0].documentation


@simulated()
async def test_resources_that_are_not_there_are_told_one_by_one(s: Session) -> None:
    await s.create("t")
    wanted = [(TOPIC, "nowhere"), (TOPIC, "t"), (BROKER, "7"), (BROKER, "x"), (GROUP, ""), (99, "?"), (-1, "?")]
    resources = [DescribeConfigsResource(resource_type=kind, resource_name=name) for kind, name in wanted]
    results = (await s.call(DescribeConfigsRequest(resources=resources))).results
    found = {(result.resource_type, result.resource_name): result.error_code for result in results}
    assert list(found) == wanted
    assert found.pop((TOPIC, "nowhere")) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert found.pop((TOPIC, "t")) == ErrorCode.NONE
    assert set(found.values()) == {ErrorCode.INVALID_REQUEST}


@simulated()
async def test_a_resource_that_is_named_often_is_told_once(s: Session) -> None:
    """Else a small request makes an answer of any size."""
    await s.create("t")
    many = [DescribeConfigsResource(resource_type=TOPIC, resource_name="t", configuration_keys=None)] * 1000
    answer = await s.call(DescribeConfigsRequest(resources=many))
    assert len(answer.results) == 1


# ---- IncrementalAlterConfigs


@simulated()
async def test_each_resource_changes_all_at_once_or_not_at_all(s: Session) -> None:
    await s.create("t", retention_ms="1")
    bad = await altered(s, TOPIC, "t", ("retention.ms", SET, "2"), ("segment.ms", SET, "never"))
    assert bad.error_code == ErrorCode.INVALID_CONFIG
    assert (await described(s, TOPIC, "t"))["retention.ms"].value == "1"
    assert (await altered(s, TOPIC, "t", ("retention.ms", SET, "2"), ("segment.ms", SET, "3"))).error_code == 0
    configs = await described(s, TOPIC, "t")
    assert (configs["retention.ms"].value, configs["segment.ms"].value) == ("2", "3")
    assert (await altered(s, TOPIC, "t", ("retention.ms", DELETE, None))).error_code == 0
    assert (await described(s, TOPIC, "t"))["retention.ms"].config_source == DEFAULT


@pytest.mark.parametrize(
    ("kind", "name", "change", "error"),
    [
        (TOPIC, "t", ("no.such.config", SET, "1"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("retention.ms", SET, "soon"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("retention.ms", SET, None), ErrorCode.INVALID_REQUEST),
        (TOPIC, "t", ("retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("retention.ms", 9, "1"), ErrorCode.INVALID_REQUEST),
        (TOPIC, "t", ("cleanup.policy", SET, "shred"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("remote.storage.enable", SET, "true"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "nowhere", ("retention.ms", SET, "1"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "", ("retention.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
        (BROKER, "7", ("max.connections", SET, "1"), ErrorCode.BROKER_ID_NOT_REGISTERED),
        (BROKER, "one", ("max.connections", SET, "1"), ErrorCode.INVALID_REQUEST),
        (BROKER, "1" * 5000, ("max.connections", SET, "1"), ErrorCode.INVALID_REQUEST),
        (BROKER, "1", ("node.id", SET, "2"), ErrorCode.INVALID_REQUEST),
        (BROKER, "1", ("no.such.config", SET, "2"), ErrorCode.INVALID_REQUEST),
        (BROKER, "1", ("ssl.keystore.location", SET, "/etc/key"), ErrorCode.INVALID_REQUEST),
        (BROKER, "1", ("sasl.enabled.mechanisms", SET, "PLAIN"), ErrorCode.INVALID_REQUEST),
        (BROKER, "1", ("log.cleaner.threads", SET, "many"), ErrorCode.INVALID_REQUEST),
        (BROKER, "", ("sasl.kerberos.kinit.cmd", SET, "kinit"), ErrorCode.INVALID_REQUEST),
        (BROKER_LOGGER, "1", ("root", SET, "LOUD"), ErrorCode.INVALID_CONFIG),
        (BROKER_LOGGER, "1", ("root", SET, None), ErrorCode.INVALID_CONFIG),
        (BROKER_LOGGER, "1", ("root", APPEND, "INFO"), ErrorCode.INVALID_REQUEST),
        (BROKER_LOGGER, "1", ("root", DELETE, None), ErrorCode.INVALID_REQUEST),
        (BROKER_LOGGER, "1", ("no.such.event", SET, "WARN"), ErrorCode.INVALID_CONFIG),
        (BROKER_LOGGER, "7", ("root", SET, "WARN"), ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "m", ("interval.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
        (GROUP, "g", ("x", SET, "1"), ErrorCode.INVALID_CONFIG),
        (GROUP, "", ("consumer.session.timeout.ms", SET, "50000"), ErrorCode.INVALID_REQUEST),
        (GROUP, "g", ("consumer.session.timeout.ms", SET, "1000"), ErrorCode.INVALID_CONFIG),
        (GROUP, "g", ("consumer.session.timeout.ms", SET, "soon"), ErrorCode.INVALID_CONFIG),
        (GROUP, "g", ("share.session.timeout.ms", SET, "50000"), ErrorCode.INVALID_CONFIG),
        (77, "g", ("x", SET, "1"), ErrorCode.INVALID_REQUEST),
    ],
)
@simulated()
async def test_what_would_take_no_effect_is_refused(
    s: Session, kind: int, name: str, change: tuple[str, int, str | None], error: ErrorCode
) -> None:
    await s.create("t")
    result = await altered(s, kind, name, change)
    assert result.error_code == error, result.error_message


@simulated()
async def test_lists_grow_and_shrink(s: Session) -> None:
    await s.create("t")
    result = await altered(s, TOPIC, "t", ("cleanup.policy", APPEND, "delete"))
    assert result.error_code == 0, result.error_message
    assert (await described(s, TOPIC, "t"))["cleanup.policy"].value == "delete"


@simulated()
async def test_settings_of_brokers_can_be_made_for_one_or_for_all(s: Session) -> None:
    assert (await altered(s, BROKER, "", ("message.max.bytes", SET, "3000"))).error_code == 0
    found = (await described(s, BROKER, "1"))["message.max.bytes"]
    assert (found.value, found.config_source) == ("3000", DYNAMIC_DEFAULT)
    assert (await altered(s, BROKER, "1", ("message.max.bytes", SET, "4000"))).error_code == 0
    found = (await described(s, BROKER, "1", include_synonyms=True))["message.max.bytes"]
    assert (found.value, found.config_source) == ("4000", DYNAMIC_BROKER)
    assert [one.value for one in found.synonyms][:2] == ["4000", "3000"]
    defaults = await described(s, BROKER, "")
    assert defaults["message.max.bytes"].value == "3000"
    assert (await altered(s, BROKER, "1", ("message.max.bytes", DELETE, None))).error_code == 0
    assert (await described(s, BROKER, "1"))["message.max.bytes"].value == "3000"


@simulated()
async def test_settings_without_effect_are_taken_with_a_warning(s: Session) -> None:
    """Kafka changes them at run time, so runbooks do; here they have no effect and are shown as such."""
    of_login = "sasl.login.refresh.buffer.seconds"
    for name, key in (("", "log.cleaner.threads"), ("1", "background.threads"), ("1", of_login)):
        assert (await altered(s, BROKER, name, (key, SET, "7"))).error_code == 0
        found = (await described(s, BROKER, "1", include_documentation=True))[key]
        assert (found.value, found.read_only) == ("7", False)
        assert found.config_source == (DYNAMIC_BROKER if name else DYNAMIC_DEFAULT)
        assert found.documentation.startswith("No effect here: ")
        said = s.node.events.said("config", "message")
        warnings = [one for one in said if one.startswith(f"the run-time setting {key} ")]
        assert len(warnings) == 1, "once, not with every other change"
    assert (await altered(s, BROKER, "", ("metric.reporters", APPEND, "x.Y"))).error_code == 0
    reporters = (await described(s, BROKER, ""))["metric.reporters"].value
    assert reporters == "org.apache.kafka.common.metrics.JmxReporter,x.Y"
    replaced = ReplacedResource(resource_type=BROKER, resource_name="", configs=[])
    (result,) = (await s.call(AlterConfigsRequest(resources=[replaced]))).responses
    assert result.error_code == 0
    assert (await described(s, BROKER, "")) == {}


@simulated()
async def test_a_value_that_is_the_default_is_set_all_the_same(s: Session) -> None:
    assert (await altered(s, BROKER, "1", ("message.max.bytes", SET, "1048588"))).error_code == 0
    assert (await described(s, BROKER, "1"))["message.max.bytes"].config_source == DYNAMIC_BROKER


@simulated()
async def test_client_metrics_have_no_settings(s: Session) -> None:
    assert await described(s, CLIENT_METRICS, "m") == {}
    assert (await altered(s, CLIENT_METRICS, "m", ("interval.ms", DELETE, None))).error_code == 0
    wanted = [(BROKER_LOGGER, "7"), (BROKER_LOGGER, ""), (CLIENT_METRICS, "")]
    resources = [DescribeConfigsResource(resource_type=kind, resource_name=name) for kind, name in wanted]
    results = (await s.call(DescribeConfigsRequest(resources=resources))).results
    assert [result.error_code for result in results] == [ErrorCode.INVALID_REQUEST] * 3


@simulated()
async def test_the_levels_of_loggers_decide_which_events_are_written(s: Session) -> None:
    loggers = await described(s, BROKER_LOGGER, "1")
    assert (loggers["root"].value, loggers["ready"].value, loggers["root"].read_only) == ("INFO", "INFO", False)
    assert {config.config_source for config in loggers.values()} == {DYNAMIC_LOGGER}

    async def changed(*changes: tuple[str, int, str | None]) -> int:
        """How many lines a change of a broker's settings writes after this."""
        assert (await altered(s, BROKER_LOGGER, "1", *changes)).error_code == 0
        before = len(s.node.events.named("config changed"))
        number = str(1000 + s.node.served.quorum.image.offset)
        assert (await altered(s, BROKER, "1", ("max.connections", SET, number))).error_code == 0
        await s.until(lambda: str(s.node.served.service._config.max_connections) == number)
        return len(s.node.events.named("config changed")) - before

    assert await changed() == 1
    assert await changed(("root", SET, "WARN")) == 0
    assert await changed(("config.changed", SET, "DEBUG")) == 1
    loggers = await described(s, BROKER_LOGGER, "1")
    assert (loggers["config.changed"].value, loggers["ready"].value) == ("DEBUG", "WARN")
    assert await changed(("config.changed", DELETE, None)) == 0
    assert await changed(("root", SET, "TRACE")) == 1


@simulated()
async def test_changes_survive_a_restart(s: Session) -> None:
    await s.create("t")
    await altered(s, TOPIC, "t", ("retention.ms", SET, "123"))
    await altered(s, BROKER, "1", ("message.max.bytes", SET, "4000"))
    await s.restarted(power_loss=True)
    assert (await described(s, TOPIC, "t"))["retention.ms"].value == "123"
    assert (await described(s, TOPIC, "t"))["max.message.bytes"].value == "4000"
    assert (await described(s, BROKER, "1"))["message.max.bytes"].value == "4000"


# ---- AlterConfigs


@simulated()
async def test_what_is_not_named_goes_back_to_its_default(s: Session) -> None:
    await s.create("t", retention_ms="1", segment_ms="2")
    for configs, expected in (
        ([ReplacedConfig(name="segment.ms", value="3")], {"retention.ms": DEFAULT, "segment.ms": DYNAMIC_TOPIC}),
        ([], {"retention.ms": DEFAULT, "segment.ms": DEFAULT}),
    ):
        resource = ReplacedResource(resource_type=TOPIC, resource_name="t", configs=configs)
        (result,) = (await s.call(AlterConfigsRequest(resources=[resource]))).responses
        assert result.error_code == 0
        found = await described(s, TOPIC, "t")
        assert {name: found[name].config_source for name in expected} == expected
    twice = AlterConfigsRequest(resources=[resource, resource])
    (result,) = (await s.call(twice)).responses
    assert result.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("kind", [-128, -1, 0, 1, 77, 127])
@simulated()
async def test_a_type_of_resource_that_is_not_there_is_refused(s: Session, kind: int) -> None:
    configs = [ReplacedConfig(name="x", value="1")]
    resource = ReplacedResource(resource_type=kind, resource_name="g", configs=configs)
    (replaced,) = (await s.call(AlterConfigsRequest(resources=[resource]))).responses
    for result in (replaced, await altered(s, kind, "g", ("x", SET, "1"))):
        assert (result.error_code, result.error_message) == (ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")


# ---- ListConfigResources


@simulated()
async def test_resources_are_listed_by_type(s: Session) -> None:
    await s.create("a")
    await s.create("b")
    assert (await s.alter("g", GROUP, consumer_session_timeout_ms="50000")).error_code == 0
    everything = [(TOPIC, "a"), (TOPIC, "b"), (BROKER, "1"), (BROKER_LOGGER, "1"), (GROUP, "g")]
    for kinds, expected in (
        ([], everything),
        ([TOPIC], [(TOPIC, "a"), (TOPIC, "b")]),
        ([BROKER, GROUP], [(BROKER, "1"), (GROUP, "g")]),
        ([CLIENT_METRICS], []),
    ):
        answer = await s.call(ListConfigResourcesRequest(resource_types=kinds))
        assert answer.error_code == 0
        assert [(one.resource_type, one.resource_name) for one in answer.config_resources] == expected
    assert (await s.call(ListConfigResourcesRequest(resource_types=[3]))).error_code == ErrorCode.UNSUPPORTED_VERSION
