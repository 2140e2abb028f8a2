"""Which subscribers are notified of a change at run time."""

from __future__ import annotations

import pytest

from broker.session import Session, simulated
from penstock.config import BROKER, TOPIC, BrokerConfig, ConfigError, UpdateMode
from penstock.config.group_table import ConsumerGroups
from penstock.config.live import LiveConfig
from penstock.config.log_table import Retention
from penstock.config.node_table import Connections, Identity


def test_a_subscriber_hears_of_its_sections_and_names_only() -> None:
    live = LiveConfig(BrokerConfig.resolve({}))
    heard: list[str] = []
    live.subscribe(lambda config: heard.append(f"connections {config.max_connections}"), Connections)
    live.subscribe(lambda config: heard.append(f"threads {config.num_io_threads}"), "num.io.threads")
    live.subscribe(lambda config: heard.append(f"retention {config.log_retention_ms}"), Retention)
    live.subscribe(lambda config: heard.append("any"))

    assert live.update({"max.connections": "5"}, {}) == ("max.connections",)
    assert heard == ["connections 5", "any"]
    heard.clear()
    assert live.update({"max.connections": "5"}, {"num.io.threads": "3", "log.retention.ms": "7"}) == (
        "log.retention.ms",
        "num.io.threads",
    )
    assert heard == ["threads 3", "retention 7", "any"]
    heard.clear()
    assert live.update({}, {"max.connections": "5", "num.io.threads": "3", "log.retention.ms": "7"}) == ()
    assert heard == ["any"], "where a value comes from has changed, and is described"
    assert live.current.dynamic_broker["max.connections"] == "5"


def test_invalid_settings_change_nothing() -> None:
    live = LiveConfig(BrokerConfig.resolve({}))
    heard: list[BrokerConfig] = []
    live.subscribe(heard.append)
    before = live.current
    with pytest.raises(ConfigError):
        live.update({"log.cleaner.min.compaction.lag.ms": "9", "log.cleaner.max.compaction.lag.ms": "3"}, {})
    assert live.current is before
    assert heard == []


@pytest.mark.parametrize("interest", [Identity, "node.id"])
def test_subscribing_to_properties_that_never_change_is_an_error(interest: type[Identity] | str) -> None:
    with pytest.raises(AssertionError, match="can change at run time"):
        LiveConfig(BrokerConfig.resolve({})).subscribe(lambda config: None, interest)


def test_a_section_is_heard_by_its_changing_properties() -> None:
    live = LiveConfig(BrokerConfig.resolve({}))
    live.subscribe(lambda config: None, ConsumerGroups)
    assert live.listeners_of("group.consumer.assignment.interval.ms") == 1
    assert live.listeners_of("group.consumer.session.timeout.ms") == 0


@simulated()
async def test_a_broker_hears_of_every_property_that_changes_at_run_time(s: Session) -> None:
    live = s.node.broker._live
    changing = [name for name, definition in BROKER.items() if definition.mode is not UpdateMode.READ_ONLY]
    assert [name for name in changing if not live.listeners_of(name)] == []
    assert {d.origin for d in TOPIC.values() if d.origin in BROKER} <= set(changing)
