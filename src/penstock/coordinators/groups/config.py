"""What can be set about groups. Names and defaults are Kafka's; the broker's configuration makes one of these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

UNBOUNDED: Final = 2_147_483_647


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """The settings of all groups of a broker. Properties of Kafka in snake_case, with units last."""

    # -- the classic protocol ----------------------------------------------------------------------------------------

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = UNBOUNDED

    # -- the consumer protocol (KIP-848) -----------------------------------------------------------------------------

    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_min_session_timeout_ms: int = 45_000
    group_consumer_max_session_timeout_ms: int = 60_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_min_heartbeat_interval_ms: int = 5_000
    group_consumer_max_heartbeat_interval_ms: int = 15_000
    group_consumer_max_size: int = UNBOUNDED
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    group_consumer_migration_policy: str = "bidirectional"
    group_consumer_regex_refresh_interval_ms: int = 600_000
    group_consumer_assignment_interval_ms: int = 1_000
    group_consumer_min_assignment_interval_ms: int = 0
    group_consumer_max_assignment_interval_ms: int = 15_000

    # -- offsets -----------------------------------------------------------------------------------------------------

    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 3_600 * 1_000
    offsets_retention_check_interval_ms: int = 600_000

    # -- what the topic takes ----------------------------------------------------------------------------------------

    batch_bytes_max: int = 1_048_588
    """`max.message.bytes` of the offsets topic: a decision whose records are larger could never be written."""
