"""Broker properties of logs: topic defaults, validation and storage of records, retention, compaction and syncing."""

from __future__ import annotations

import sys

from penstock.config.definitions import (
    INT64_MAX,
    Importance,
    Kind,
    UpdateMode,
    Validator,
    at_least,
    at_least_or,
    between,
    between_or,
    distinct_of,
    one_of,
)
from penstock.config.tables import NoAttribute, Section, folded, prop

HIGH, LOW = Importance.HIGH, Importance.LOW
CLUSTER_WIDE = UpdateMode.CLUSTER_WIDE
BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = Kind.BOOLEAN, Kind.STRING, Kind.INT, Kind.LONG, Kind.DOUBLE, Kind.LIST

HOUR_MS = 3_600_000
MINUTE_MS = 60_000
SEGMENT_BYTES_MIN = 1024 * 1024
DEDUPE_BUFFER_BYTES_MIN = 1024 * 1024
CLEANUP_POLICY = Validator(
    "delete, compact or both, or empty to keep records forever",
    lambda value: distinct_of("delete", "compact").check(value),
)


class Topics(Section, title="Topics"):
    """Defaults for new topics."""

    num_partitions: int = prop(
        "num.partitions",
        INT,
        1,
        at_least(1),
        "The number of partitions of automatically created topics, and of topics whose creator does not specify one.",
    )
    default_replication_factor: int = prop(
        "default.replication.factor",
        INT,
        1,
        at_least(1),
        "The replication factor of automatically created topics, and of topics whose creator does not specify one.",
    )
    auto_create_topics_enable: bool = prop(
        "auto.create.topics.enable",
        BOOLEAN,
        True,
        None,
        "Create a missing topic when a client that allows it asks for it. Set it to false if a mistyped topic name "
        "should be an error.",
        importance=HIGH,
    )
    delete_topic_enable: bool = prop(
        "delete.topic.enable",
        BOOLEAN,
        True,
        None,
        "Allow administrators to delete topics.",
        importance=HIGH,
    )
    min_insync_replicas: int = prop(
        "min.insync.replicas",
        INT,
        1,
        at_least(1),
        "The number of replicas that must have a record before a producer with acks=all gets its acknowledgement.",
        CLUSTER_WIDE,
        HIGH,
    )
    unclean_leader_election_enable: bool = prop(
        "unclean.leader.election.enable",
        BOOLEAN,
        False,
        None,
        "Allow a replica that is not in sync to become leader if no other is left. The partition becomes available "
        "again, but acknowledged records may be lost.",
        CLUSTER_WIDE,
        HIGH,
        cluster_only=True,
    )


class Records(Section, title="Records"):
    """Limits on records that producers send, and how records are stored."""

    message_max_bytes: int = prop(
        "message.max.bytes",
        INT,
        1_048_588,
        at_least(0),
        "The largest record batch that a producer may send, after compression. If you increase it, increase "
        "`replica.fetch.max.bytes` and the consumers' limits as well.",
        CLUSTER_WIDE,
        HIGH,
    )
    log_message_timestamp_type: str = prop(
        "log.message.timestamp.type",
        STRING,
        "CreateTime",
        one_of("CreateTime", "LogAppendTime"),
        "The clock for record timestamps: the producer's (CreateTime), or the broker's at the time of writing "
        "(LogAppendTime).",
        CLUSTER_WIDE,
    )
    log_message_timestamp_before_max_ms: int = prop(
        "log.message.timestamp.before.max.ms",
        LONG,
        INT64_MAX,
        at_least(0),
        "How far a record's timestamp may be behind the broker's clock. Older records are refused. Ignored with "
        "LogAppendTime.",
        CLUSTER_WIDE,
    )
    log_message_timestamp_after_max_ms: int = prop(
        "log.message.timestamp.after.max.ms",
        LONG,
        3_600_000,
        at_least(0),
        "How far a record's timestamp may be ahead of the broker's clock. Records from further in the future are "
        "refused. Ignored with LogAppendTime.",
        CLUSTER_WIDE,
    )
    compression_type: str = prop(
        "compression.type",
        STRING,
        "producer",
        one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        "The compression of stored batches. `producer` stores them as they were sent, at no cost. With any other "
        "value the broker recompresses batches whose codec differs.",
        CLUSTER_WIDE,
        HIGH,
    )
    penstock_produce_validation: str = prop(
        "penstock.produce.validation",
        STRING,
        "full",
        one_of("full", "header"),
        "How much of a batch is checked before it is appended. `full` checks every record, as Kafka does, and "
        "decompresses batches for that, so unreadable records are refused. `header` checks only the header and the "
        "checksum, except for the keys of compacted topics and `message.timestamp.before.max.ms`. It saves CPU time if "
        "all producers are trusted.",
        CLUSTER_WIDE,
    )
    penstock_decompression_request_bytes_max: int = prop(
        "penstock.decompression.request.bytes.max",
        LONG,
        128 << 20,
        between(1 << 20, 256 << 20),
        "The limit on the decompressed size of all batches of one produce request. Beyond it the request is refused "
        "with MESSAGE_TOO_LARGE. Memory is allocated only as needed.",
    )
    penstock_decompression_bytes_max: int = prop(
        "penstock.decompression.bytes.max",
        LONG,
        128 << 20,
        between(1 << 20, 1 << 40),
        "The limit on the decompressed size of all batches that are checked or compressed at the same time; others "
        "wait. Up to three times as much memory is used. A single batch that exceeds it is refused.",
    )
    compression_gzip_level: int = prop(
        "compression.gzip.level",
        INT,
        -1,
        between_or(1, 9, -1),
        "The compression level when the broker compresses with gzip; -1 is gzip's default.",
        CLUSTER_WIDE,
    )
    compression_lz4_level: int = prop(
        "compression.lz4.level",
        INT,
        9,
        between(1, 17),
        "The compression level when the broker compresses with lz4.",
        CLUSTER_WIDE,
    )
    compression_zstd_level: int = prop(
        "compression.zstd.level",
        INT,
        3,
        between(-131_072, 22),
        "The compression level when the broker compresses with zstd.",
        CLUSTER_WIDE,
    )
    producer_id_expiration_ms: int = prop(
        "producer.id.expiration.ms",
        INT,
        86_400_000,
        at_least(1),
        "How long the broker remembers an idempotent producer after its last write. After that, duplicates from it are "
        "not detected.",
        CLUSTER_WIDE,
        LOW,
    )
    producer_id_expiration_check_interval_ms: int = prop(
        "producer.id.expiration.check.interval.ms",
        INT,
        600_000,
        at_least(1),
        "How often expired producers are removed.",
        importance=LOW,
        hidden=True,
    )


class Segments(Section, title="Segments and indexes"):
    """How a log is split into files."""

    log_segment_bytes: int = prop(
        "log.segment.bytes",
        INT,
        1024**3,
        at_least(SEGMENT_BYTES_MIN),
        "The maximum size of a segment. A segment that would exceed it is closed and a new one started. Retention "
        "removes whole segments.",
        CLUSTER_WIDE,
        HIGH,
    )
    log_roll_ms: int = prop(
        "log.roll.ms",
        LONG,
        None,
        at_least(1),
        "The maximum age of a segment. An older one is closed even if it is not full, so that retention can remove it. "
        "Falls back to `log.roll.hours`.",
        CLUSTER_WIDE,
        HIGH,
        fallbacks=(("log.roll.hours", HOUR_MS),),
    )
    log_roll_hours: NoAttribute = folded(
        "log.roll.hours",
        INT,
        168,
        at_least(1),
        "The same in hours, if `log.roll.ms` is not set.",
        importance=HIGH,
    )
    log_roll_jitter_ms: int = prop(
        "log.roll.jitter.ms",
        LONG,
        None,
        at_least(0),
        "The maximum random time subtracted from the age at which a segment is closed. It prevents many partitions "
        "from rolling segments at the same time. Falls back to `log.roll.jitter.hours`.",
        CLUSTER_WIDE,
        HIGH,
        fallbacks=(("log.roll.jitter.hours", HOUR_MS),),
    )
    log_roll_jitter_hours: NoAttribute = folded(
        "log.roll.jitter.hours",
        INT,
        0,
        at_least(0),
        "The same in hours, if `log.roll.jitter.ms` is not set.",
        importance=HIGH,
    )
    log_index_interval_bytes: int = prop(
        "log.index.interval.bytes",
        INT,
        4096,
        at_least(0),
        "The number of log bytes between two entries of the offset index. A smaller value makes look-ups faster and "
        "the index larger.",
        CLUSTER_WIDE,
    )
    log_index_size_max_bytes: int = prop(
        "log.index.size.max.bytes",
        INT,
        10 * 1024 * 1024,
        at_least(4),
        "The maximum size of an index. A segment whose index is full is closed.",
        CLUSTER_WIDE,
    )
    log_segment_delete_delay_ms: int = prop(
        "log.segment.delete.delay.ms",
        LONG,
        60_000,
        at_least(0),
        "How long the files of a removed segment stay on disk. Reads that are in progress can finish in this time.",
        CLUSTER_WIDE,
        HIGH,
    )


class Retention(Section, title="Retention"):
    """How long records are kept."""

    log_cleanup_policy: tuple[str, ...] = prop(
        "log.cleanup.policy",
        LIST,
        ("delete",),
        CLEANUP_POLICY,
        "What happens to old segments. `delete` removes them by age and size, `compact` keeps the newest value of each "
        "key, `compact,delete` does both; an empty value keeps everything forever.",
        CLUSTER_WIDE,
    )
    log_retention_ms: int = prop(
        "log.retention.ms",
        LONG,
        None,
        at_least_or(1, -1),
        "How long records are kept; -1 keeps them forever. Falls back to `log.retention.minutes`, then "
        "`log.retention.hours`.",
        CLUSTER_WIDE,
        HIGH,
        fallbacks=(("log.retention.minutes", MINUTE_MS), ("log.retention.hours", HOUR_MS)),
    )
    log_retention_minutes: NoAttribute = folded(
        "log.retention.minutes",
        INT,
        None,
        at_least_or(1, -1),
        "The same in minutes, if `log.retention.ms` is not set.",
        importance=HIGH,
    )
    log_retention_hours: NoAttribute = folded(
        "log.retention.hours",
        INT,
        168,
        at_least_or(1, -1),
        "The same in hours, if neither `log.retention.ms` nor `log.retention.minutes` is set.",
        importance=HIGH,
    )
    log_retention_bytes: int = prop(
        "log.retention.bytes",
        LONG,
        -1,
        at_least(-1),
        "The size of a partition above which its oldest segments are removed; -1 sets no limit.",
        CLUSTER_WIDE,
        HIGH,
    )
    log_retention_check_interval_ms: int = prop(
        "log.retention.check.interval.ms",
        LONG,
        300_000,
        at_least(1),
        "How often the broker checks for segments to remove.",
    )
    penstock_stray_retention_ms: int = prop(
        "penstock.stray.retention.ms",
        LONG,
        7 * 86_400_000,
        at_least_or(0, -1),
        "How long data that was set aside is kept: directories that are not in the metadata, ends of logs cut off by a "
        "recovery, damaged metadata. -1 keeps it forever. `penstock log strays` lists it.",
        CLUSTER_WIDE,
        kafka_default="no such property",
    )


class Compaction(Section, title="Compaction"):
    """When and how logs are compacted."""

    log_cleaner_min_cleanable_ratio: float = prop(
        "log.cleaner.min.cleanable.ratio",
        DOUBLE,
        0.5,
        between(0, 1),
        "The uncompacted share of a log above which it is compacted. A lower value saves disk space and costs more "
        "work.",
        CLUSTER_WIDE,
    )
    log_cleaner_min_compaction_lag_ms: int = prop(
        "log.cleaner.min.compaction.lag.ms",
        LONG,
        0,
        at_least(0),
        "The time for which a new record is not compacted.",
        CLUSTER_WIDE,
    )
    log_cleaner_max_compaction_lag_ms: int = prop(
        "log.cleaner.max.compaction.lag.ms",
        LONG,
        INT64_MAX,
        at_least(1),
        "The maximum time that a record may stay uncompacted. A log with an older record is compacted regardless of "
        "its dirty ratio. Segments are also closed at this age.",
        CLUSTER_WIDE,
    )
    log_cleaner_delete_retention_ms: int = prop(
        "log.cleaner.delete.retention.ms",
        LONG,
        86_400_000,
        at_least(0),
        "How long a tombstone (a record without a value) is kept after its first compaction, so that readers learn of "
        "the deletion. A reader that takes longer to read the whole log may miss it.",
        CLUSTER_WIDE,
    )
    log_cleaner_backoff_ms: int = prop(
        "log.cleaner.backoff.ms",
        LONG,
        15_000,
        at_least(0),
        "How long the broker waits before checking again if no log needed compaction.",
        CLUSTER_WIDE,
    )
    log_cleaner_io_max_bytes_per_second: float = prop(
        "log.cleaner.io.max.bytes.per.second",
        DOUBLE,
        sys.float_info.max,
        at_least(1),
        "The maximum rate at which compaction reads and writes, together.",
        CLUSTER_WIDE,
    )
    log_cleaner_dedupe_buffer_size: int = prop(
        "log.cleaner.dedupe.buffer.size",
        LONG,
        134_217_728,
        at_least(DEDUPE_BUFFER_BYTES_MIN),
        "The memory for the keys of the log being compacted, in the compaction subprocess; a key takes about 160 "
        "bytes. A log with more uncompacted keys is compacted in several passes, each of which reads everything "
        "before it.",
        CLUSTER_WIDE,
    )
    log_cleaner_io_buffer_load_factor: float = prop(
        "log.cleaner.io.buffer.load.factor",
        DOUBLE,
        0.9,
        between(0, 1),
        "The usable share of `log.cleaner.dedupe.buffer.size`.",
        CLUSTER_WIDE,
    )


class Durability(Section, title="Durability and disk"):
    """When records are synced to disk."""

    log_flush_interval_messages: int = prop(
        "log.flush.interval.messages",
        LONG,
        INT64_MAX,
        at_least(1),
        "The number of records after which a partition is synced to disk. With 1 a record is acknowledged only when "
        "it is on disk.",
        CLUSTER_WIDE,
        HIGH,
    )
    log_flush_interval_ms: int = prop(
        "log.flush.interval.ms",
        LONG,
        None,
        at_least(0),
        "The age of the oldest unsynced record at which a partition is synced to disk. Falls back to "
        "`log.flush.scheduler.interval.ms`.",
        CLUSTER_WIDE,
        HIGH,
        fallbacks=(("log.flush.scheduler.interval.ms", 1),),
    )
    log_flush_scheduler_interval_ms: NoAttribute = folded(
        "log.flush.scheduler.interval.ms",
        LONG,
        INT64_MAX,
        at_least(1),
        "The same, if `log.flush.interval.ms` is not set. There is no scheduler: each log is synced when it is due.",
        importance=HIGH,
    )
    log_flush_offset_checkpoint_interval_ms: int = prop(
        "log.flush.offset.checkpoint.interval.ms",
        INT,
        60_000,
        at_least(0),
        "How often the synced offset of each log (its recovery point) is saved. After a crash, recovery starts there.",
        importance=HIGH,
    )
    log_flush_start_offset_checkpoint_interval_ms: int = prop(
        "log.flush.start.offset.checkpoint.interval.ms",
        INT,
        60_000,
        at_least(0),
        "How often the start offset of each log is saved. It keeps deleted records deleted after a restart.",
        importance=HIGH,
    )
    num_recovery_threads_per_data_dir: int = prop(
        "num.recovery.threads.per.data.dir",
        INT,
        2,
        at_least(1),
        "The number of logs that are recovered concurrently when the broker starts after a crash. A change at run time "
        "applies from the next start.",
        mode=CLUSTER_WIDE,
        importance=HIGH,
    )
    num_io_threads: int = prop(
        "num.io.threads",
        INT,
        8,
        at_least(1),
        "The number of threads that wait for the disk: for reads that are not in the page cache, and syncs. Requests "
        "are processed by one event loop.",
        mode=CLUSTER_WIDE,
        importance=HIGH,
    )
