"""Configuration: Kafka's properties for brokers and topics, parsed, checked, described and altered.

Theory of operation
-------------------
A property that is set either takes effect, is refused, or is reported as having no effect. So there are four tables,
and every broker property of Kafka 4 is in exactly one of them:

- `BROKER` (`broker_table.py`, with a module for each subject): properties that work here, with Kafka's names, types,
  limits and defaults. If a default differs from Kafka's, the definition says so.
- `NOT_YET` (`unserved.py`): features that are not implemented yet. Kafka's default is accepted; any other value is
  refused with the reason.
- `WITHOUT_MEANING` (`unserved.py`): properties of mechanisms that this broker does not have. They are accepted with a
  warning that names the alternative.
- `INERT` (`inert_table.py`): the same, for properties that Kafka lets operators change at run time. They are checked,
  stored and described.

`TOPIC` (`topic.py`) has the properties of topics. The default of each is a broker property, with Kafka's chain of
fallbacks (`retention.ms` ← `log.retention.ms` ← `log.retention.minutes` ← `log.retention.hours`).

`GROUP` (`group.py`) has the properties of single groups, whose defaults are broker properties as well.

Each property is declared once, in a class that is both the table and the type of the values: see `tables.py`. While a
broker runs, `LiveConfig` (`live.py`) holds the configuration in force and notifies components of changes to the
properties they use.

`BrokerConfig.resolve` and `TopicConfig.resolve` turn text into immutable objects with typed attributes: reading
`config.num_partitions` costs one attribute access, and a change at run time creates a new object. `describe.py` and
`alter.py` implement DescribeConfigs and IncrementalAlterConfigs.

Everything here is pure; the caller reads the file.
"""

from penstock.config.alter import (
    Alteration,
    AlterOperation,
    alter_broker,
    alter_client_metrics,
    alter_group,
    alter_topic,
)
from penstock.config.broker import BrokerConfig, validate_broker_config, validate_broker_configs
from penstock.config.broker_table import BROKER
from penstock.config.definitions import ConfigError, Definition, Importance, Kind, UpdateMode, Value
from penstock.config.describe import (
    ConfigSource,
    DescribedConfig,
    Synonym,
    describe_broker,
    describe_broker_defaults,
    describe_client_metrics,
    describe_group,
    describe_topic,
)
from penstock.config.group import GROUP
from penstock.config.inert_table import INERT, SETTABLE
from penstock.config.listener_security import ListenerSecurity
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
    "ListenerSecurity",
    "Synonym",
    "TopicConfig",
    "UpdateMode",
    "Value",
    "alter_broker",
    "alter_client_metrics",
    "alter_group",
    "alter_topic",
    "describe_broker",
    "describe_broker_defaults",
    "describe_client_metrics",
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
