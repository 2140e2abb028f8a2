"""All rules, by name: the registry behind `docs/reference/planning.md` and the sources that commands print."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from penstock.planning import brokers, cost, durability, load, partitions, presets, storage, tables, tradeoffs
from penstock.planning.catalogue import Rule

SUBJECTS: Final[Mapping[str, tuple[Rule, ...]]] = MappingProxyType(
    {
        "Partitions": (
            partitions.PARTITION_COUNT,
            partitions.PARTITION_CLASSES,
            partitions.PARTITION_HEADROOM,
            partitions.PARTITION_SIMPLE,
            partitions.PARTITION_LIMITS,
            partitions.KEY_MOVES,
        ),
        "Storage": (
            storage.STORAGE,
            storage.STORAGE_HEADROOM,
            storage.SEGMENT_SLACK,
            storage.OFFSET_STORAGE,
            storage.METADATA_STORAGE,
        ),
        "Load": (load.RATES, load.NETWORK, load.CPU, load.MEMORY, load.IOPS),
        "Brokers": (
            brokers.BROKER_CAPACITY,
            brokers.BROKER_COUNT,
            brokers.BROKERS_BY_RATE,
            brokers.REBUILD,
            brokers.CROSS_ZONE,
            brokers.PAGE_CACHE,
        ),
        "Scaling": (
            tables.VERTICAL_MATRIX,
            tables.VERTICAL_SIZES,
            tables.HORIZONTAL,
            tables.CAPACITY_METRICS_RULE,
            tables.MILESTONES_RULE,
            tables.CONSUMERS,
            tables.REGISTRY,
            tables.REGIONS_RULE,
            tables.ALERTING,
        ),
        "Durability and trade-offs": (
            tables.REPLICATION,
            durability.DURABILITY,
            tradeoffs.TRADE_OFFS_RULE,
            presets.PRESETS_RULE,
            tradeoffs.LATENCY,
        ),
        "Cost": (
            cost.COST,
            cost.RIGHT_SIZING,
            cost.OFF_PEAK,
            cost.PURCHASE,
            cost.RETENTION_CLASSES,
            cost.COMPRESSION,
            cost.TIERS,
        ),
    }
)
RULES: Final[Mapping[str, Rule]] = MappingProxyType({rule.name: rule for rules in SUBJECTS.values() for rule in rules})


def sources(names: Iterable[str]) -> list[Rule]:
    """The rules that an answer names, each once."""
    return [RULES[name] for name in dict.fromkeys(names)]
