"""The configuration of a log. Names and defaults are those of Kafka's topic properties."""

from __future__ import annotations

import msgspec

NEVER = (1 << 63) - 1
"""Kafka's "no limit" for counts and time spans."""

DAY_MS = 86_400_000


class LogConfig(msgspec.Struct, frozen=True, kw_only=True):
    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * DAY_MS
    """-1 keeps segments forever."""
    retention_bytes: int = -1
    flush_messages: int = NEVER
    flush_ms: int = NEVER
    max_message_bytes: int = 1_048_588
    read_only: bool = False
    """Refuse what clients send, but not what leaders replicate or coordinators write."""
    validates_records: bool = True
    """Check every record that a client sends; otherwise only the records that other settings require."""
    timestamp_type: str = "CreateTime"
    """The alternative is "LogAppendTime"."""
    timestamp_before_max_ms: int = NEVER
    timestamp_after_max_ms: int = 3_600_000
    cleanup_policy: str = "delete"
    """A comma-separated list of "delete" and "compact"."""
    delete_retention_ms: int = DAY_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = NEVER
    min_cleanable_dirty_ratio: float = 0.5
    file_delete_delay_ms: int = 60_000
    producer_id_expiration_ms: int = DAY_MS

    @property
    def log_append_time(self) -> bool:
        return self.timestamp_type == "LogAppendTime"

    @property
    def opens_batches(self) -> bool:
        """Whether the records of a client's batch must be checked, and not only its header."""
        return self.validates_records or self.compacts or self.limits_age

    @property
    def limits_age(self) -> bool:
        """Whether records may be refused as too old. A batch header does not contain the smallest timestamp."""
        return self.timestamp_before_max_ms < NEVER and not self.log_append_time

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def compacts(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def roll_ms(self) -> int:
        """The age at which a segment is closed. Only closed segments are compacted, so `max.compaction.lag.ms` applies,
        too."""
        if self.compacts and self.max_compaction_lag_ms > 0:
            return min(self.segment_ms, self.max_compaction_lag_ms)
        return self.segment_ms
