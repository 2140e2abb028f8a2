"""The broker properties that take effect here, with Kafka's names, types, limits and (unless noted) defaults.

Properties that are not supported yet, or have no meaning for this broker, are in `unserved.py`.
"""

from __future__ import annotations

from penstock.config.access_table import Audit, Authorization
from penstock.config.client_metrics import Telemetry
from penstock.config.definitions import Definition
from penstock.config.group_table import ClassicGroups, ConsumerGroups, Offsets, OffsetsTopic
from penstock.config.log_table import Compaction, Durability, Records, Retention, Segments, Topics
from penstock.config.node_table import Connections, Fetching, Identity, Listeners, Quorum
from penstock.config.quota_table import ClientQuotas
from penstock.config.replication_table import Moving, Replication
from penstock.config.security_table import Logins, Tls, Tokens
from penstock.config.tables import Section
from penstock.config.transaction_table import Transactions, TransactionTopic


class BrokerProperties(
    Identity,
    Listeners,
    Tls,
    Logins,
    Tokens,
    Quorum,
    Topics,
    Records,
    Segments,
    Retention,
    Compaction,
    Durability,
    Connections,
    ClientQuotas,
    Telemetry,
    Fetching,
    Replication,
    Moving,
    ClassicGroups,
    ConsumerGroups,
    Offsets,
    OffsetsTopic,
    Transactions,
    TransactionTopic,
    Authorization,
    Audit,
):
    """All broker properties, in the order of the documentation."""


SECTIONS: tuple[type[Section], ...] = BrokerProperties.__bases__
BROKER: dict[str, Definition] = dict(BrokerProperties.definitions)

SYNONYM_CHAIN: dict[str, tuple[tuple[str, int], ...]] = {
    link: ((definition.name, 1), *definition.fallbacks)
    for definition in BROKER.values()
    if definition.fallbacks
    for link in (definition.name, *(name for name, _ in definition.fallbacks))
}
"""Properties in several units, by each of their names: the first that is set wins and is multiplied by its factor."""
