"""Configuration: Kafka's properties for brokers and topics, parsed, checked, described and altered.

Theory of operation
-------------------
A property that is set takes effect, is refused, or is reported as one without effect. So there are four tables, and
every broker property of Kafka 4 is in exactly one of them:

- `BROKER` (`broker_table.py`, with a module for each subject): what this broker does, with Kafka's names, types, limits
  and defaults. Where a default differs from Kafka's, the definition says so.
- `NOT_YET` (`unserved.py`): what is still to come. Kafka's default is accepted, anything else is refused with the
  reason.
- `WITHOUT_MEANING` (`unserved.py`): machinery that is not here. Accepted with a warning that names the substitute.
- `INERT` (`inert_table.py`): the same, for what Kafka lets operators change at run time. Checked, kept and described.

`TOPIC` (`topic.py`) has the properties of topics; each one's default is a broker property, through the chain
of fallbacks that Kafka has (`retention.ms` ← `log.retention.ms` ← `log.retention.minutes` ← `log.retention.hours`).

`GROUP` (`group.py`) has those of single groups, which have their defaults from the broker in the same way.

Each property is declared once, in a class that is the table and the type of the values at the same time: see
`tables.py`. While a broker runs, `LiveConfig` (`live.py`) holds the configuration in force, and tells components of the
changes that concern them.

`BrokerConfig.resolve` and `TopicConfig.resolve` turn text into objects with typed attributes that never change:
reading `config.num_partitions` costs a slot, and a change at run time makes a new object. `describe.py` and
`alter.py` do what DescribeConfigs and IncrementalAlterConfigs ask for.

Everything here is pure. Reading the file is left to whoever starts the broker.
"""

from penstock.config.alter import Alteration, AlterOperation, alter_broker, alter_group, alter_topic
from penstock.config.broker import BrokerConfig, validate_broker_config, validate_broker_configs
from penstock.config.broker_table import BROKER
from penstock.config.definitions import ConfigError, Definition, Importance, Kind, UpdateMode, Value
from penstock.config.describe import (
    ConfigSource,
    DescribedConfig,
    Synonym,
    describe_broker,
    describe_broker_defaults,
    describe_group,
    describe_topic,
)
from penstock.config.group import GROUP
from penstock.config.inert_table import INERT, SETTABLE
from penstock.config.listeners import Endpoint, listener_of, parse_host_port
from penstock.config.properties import parse_assignment, parse_properties
from penstock.config.replication_table import RACK_AWARE_SELECTOR
from penstock.config.topic import TOPIC, TopicConfig, validate_topic_config, validate_topic_configs
from penstock.config.unserved import NOT_YET, WITHOUT_MEANING

__all__ = [
    "BROKER",
    "GROUP",
    "INERT",
    "NOT_YET",
    "RACK_AWARE_SELECTOR",
    "SETTABLE",
    "TOPIC",
    "WITHOUT_MEANING",
    "AlterOperation",
    "Alteration",
    "BrokerConfig",
    "ConfigError",
    "ConfigSource",
    "Definition",
    "DescribedConfig",
    "Endpoint",
    "Importance",
    "Kind",
    "Synonym",
    "TopicConfig",
    "UpdateMode",
    "Value",
    "alter_broker",
    "alter_group",
    "alter_topic",
    "describe_broker",
    "describe_broker_defaults",
    "describe_group",
    "describe_topic",
    "listener_of",
    "parse_assignment",
    "parse_host_port",
    "parse_properties",
    "validate_broker_config",
    "validate_broker_configs",
    "validate_topic_config",
    "validate_topic_configs",
]
