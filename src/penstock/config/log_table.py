"""Properties of logs: what topics have by default, how records are checked and stored, kept, compacted and synced."""

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
    "delete, compact or both, or empty to keep records for ever",
    lambda value: distinct_of("delete", "compact").check(value),
)


class Topics(Section, title="Topics"):
    """What topics have whose creators say nothing."""

    num_partitions: int = prop(
        "num.partitions", INT, 1, at_least(1),
        "Partitions of a topic whose creator does not say, and of topics that are created automatically.",
    )
    default_replication_factor: int = prop(
        "default.replication.factor", INT, 1, at_least(1),
        "Replicas of a topic whose creator does not say, and of topics that are created automatically.",
    )
    auto_create_topics_enable: bool = prop(
        "auto.create.topics.enable", BOOLEAN, True, None,
        "Create a topic when a client that allows it asks for one that is not there. Switch it off where "
        "a typing error in a topic's name should be an error.",
        importance=HIGH,
    )
    delete_topic_enable: bool = prop(
        "delete.topic.enable", BOOLEAN, True, None,
        "Let administrators delete topics.",
        importance=HIGH,
    )
    min_insync_replicas: int = prop(
        "min.insync.replicas", INT, 1, at_least(1),
        "Replicas that must have a record before a producer with acks=all is told that it is safe.",
        CLUSTER_WIDE, HIGH,
    )
    unclean_leader_election_enable: bool = prop(
        "unclean.leader.election.enable", BOOLEAN, False, None,
        "Let a replica that is not in sync become leader when no other is left. That brings a partition "
        "back at the price of records that were acknowledged.",
        CLUSTER_WIDE, HIGH, cluster_only=True,
    )


class Records(Section, title="Records"):
    """What producers may send, and how it is stored."""

    message_max_bytes: int = prop(
        "message.max.bytes", INT, 1_048_588, at_least(0),
        "The largest record batch a producer may send, after compression. Raise it together with "
        "`replica.fetch.max.bytes` and the consumers' own limits.",
        CLUSTER_WIDE, HIGH,
    )
    log_message_timestamp_type: str = prop(
        "log.message.timestamp.type", STRING, "CreateTime", one_of("CreateTime", "LogAppendTime"),
        "Whose clock stamps a record: the producer's, or the broker's at the moment of writing.",
        CLUSTER_WIDE,
    )
    log_message_timestamp_before_max_ms: int = prop(
        "log.message.timestamp.before.max.ms", LONG, INT64_MAX, at_least(0),
        "How far a producer's timestamp may lie behind the broker's clock; older records are refused. "
        "Ignored with LogAppendTime.",
        CLUSTER_WIDE,
    )
    log_message_timestamp_after_max_ms: int = prop(
        "log.message.timestamp.after.max.ms", LONG, 3_600_000, at_least(0),
        "How far a producer's timestamp may lie ahead of the broker's clock; records from further in the "
        "future are refused. Ignored with LogAppendTime.",
        CLUSTER_WIDE,
    )
    compression_type: str = prop(
        "compression.type", STRING, "producer", one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        "How batches are stored. `producer` keeps what the producer chose, and costs nothing; anything "
        "else makes the broker compress again where the producer's codec differs.",
        CLUSTER_WIDE, HIGH,
    )
    penstock_produce_validation: str = prop(
        "penstock.produce.validation", STRING, "full", one_of("full", "header"),
        "How much of a batch is checked before it is taken. `full` looks at every record, as Kafka does, and "
        "decompresses batches for that: what no consumer could read is refused. `header` looks at the batch's header "
        "and checksum only, but for the keys of compacted topics and `message.timestamp.before.max.ms`. It saves "
        "processor time where all producers are trusted.",
        CLUSTER_WIDE,
    )
    penstock_decompression_request_bytes_max: int = prop(
        "penstock.decompression.request.bytes.max", LONG, 128 << 20, between(1 << 20, 256 << 20),
        "What the compressed batches of one produce request may decompress to, all together; beyond it they are "
        "refused with MESSAGE_TOO_LARGE. Memory is taken only as far as a batch needs it.",
    )
    penstock_decompression_bytes_max: int = prop(
        "penstock.decompression.bytes.max", LONG, 128 << 20, between(1 << 20, 1 << 40),
        "What all batches that are being checked or compressed may decompress to at a time; others wait. Takes up to "
        "three times as much memory. A batch that decompresses to more is refused.",
    )
    compression_gzip_level: int = prop(
        "compression.gzip.level", INT, -1, between_or(1, 9, -1),
        "Level used where the broker itself compresses with gzip; -1 is gzip's own default.",
        CLUSTER_WIDE,
    )
    compression_lz4_level: int = prop(
        "compression.lz4.level", INT, 9, between(1, 17),
        "Level used where the broker itself compresses with lz4.",
        CLUSTER_WIDE,
    )
    compression_zstd_level: int = prop(
        "compression.zstd.level", INT, 3, between(-131_072, 22),
        "Level used where the broker itself compresses with zstd.",
        CLUSTER_WIDE,
    )
    producer_id_expiration_ms: int = prop(
        "producer.id.expiration.ms", INT, 86_400_000, at_least(1),
        "How long an idempotent producer that writes nothing is remembered for the detection of "
        "duplicates.",
        CLUSTER_WIDE, LOW,
    )
    producer_id_expiration_check_interval_ms: int = prop(
        "producer.id.expiration.check.interval.ms", INT, 600_000, at_least(1),
        "How often expired producers are looked for.",
        importance=LOW, hidden=True,
    )


class Segments(Section, title="Segments and indexes"):
    """How a log is cut into files."""

    log_segment_bytes: int = prop(
        "log.segment.bytes", INT, 1024**3, at_least(SEGMENT_BYTES_MIN),
        "A segment that would grow beyond this is closed and a new one begun. Retention removes whole "
        "segments.",
        CLUSTER_WIDE, HIGH,
    )
    log_roll_ms: int = prop(
        "log.roll.ms", LONG, None, at_least(1),
        "A segment older than this is closed even if it is not full, so that retention can remove it. "
        "Falls back to `log.roll.hours`.",
        CLUSTER_WIDE, HIGH, fallbacks=(("log.roll.hours", HOUR_MS),),
    )
    log_roll_hours: NoAttribute = folded(
        "log.roll.hours", INT, 168, at_least(1),
        "The same in hours, where `log.roll.ms` is not set.",
        importance=HIGH,
    )
    log_roll_jitter_ms: int = prop(
        "log.roll.jitter.ms", LONG, None, at_least(0),
        "Take a random time up to this off the age at which a segment is closed, so that many partitions "
        "do not all do it at once. Falls back to `log.roll.jitter.hours`.",
        CLUSTER_WIDE, HIGH, fallbacks=(("log.roll.jitter.hours", HOUR_MS),),
    )
    log_roll_jitter_hours: NoAttribute = folded(
        "log.roll.jitter.hours", INT, 0, at_least(0),
        "The same in hours, where `log.roll.jitter.ms` is not set.",
        importance=HIGH,
    )
    log_index_interval_bytes: int = prop(
        "log.index.interval.bytes", INT, 4096, at_least(0),
        "Add an entry to the offset index for about every so many bytes of the log. Fewer bytes: finer "
        "look-ups, larger index.",
        CLUSTER_WIDE,
    )
    log_index_size_max_bytes: int = prop(
        "log.index.size.max.bytes", INT, 10 * 1024 * 1024, at_least(4),
        "The largest an index may become; a segment whose index is full is closed.",
        CLUSTER_WIDE,
    )
    log_segment_delete_delay_ms: int = prop(
        "log.segment.delete.delay.ms", LONG, 60_000, at_least(0),
        "How long a removed segment's files stay on disk, for those who are still reading them.",
        CLUSTER_WIDE, HIGH,
    )


class Retention(Section, title="Retention"):
    """How long records are kept."""

    log_cleanup_policy: tuple[str, ...] = prop(
        "log.cleanup.policy", LIST, ("delete",), CLEANUP_POLICY,
        "What happens to old segments: `delete` removes them by age and size, `compact` keeps the newest value of "
        "each key, `compact,delete` does both; an empty value keeps everything for ever.",
        CLUSTER_WIDE,
    )
    log_retention_ms: int = prop(
        "log.retention.ms", LONG, None, at_least_or(1, -1),
        "How long records are kept; -1 keeps them for ever. Falls back to `log.retention.minutes`, then "
        "`log.retention.hours`.",
        CLUSTER_WIDE, HIGH, fallbacks=(("log.retention.minutes", MINUTE_MS), ("log.retention.hours", HOUR_MS)),
    )
    log_retention_minutes: NoAttribute = folded(
        "log.retention.minutes", INT, None, at_least_or(1, -1),
        "The same in minutes, where `log.retention.ms` is not set.",
        importance=HIGH,
    )
    log_retention_hours: NoAttribute = folded(
        "log.retention.hours", INT, 168, at_least_or(1, -1),
        "The same in hours, where neither of the finer ones is set.",
        importance=HIGH,
    )
    log_retention_bytes: int = prop(
        "log.retention.bytes", LONG, -1, at_least(-1),
        "Remove the oldest segments of a partition once it is larger than this; -1 sets no bound.",
        CLUSTER_WIDE, HIGH,
    )
    log_retention_check_interval_ms: int = prop(
        "log.retention.check.interval.ms", LONG, 300_000, at_least(1),
        "How often the broker looks for segments to remove.",
    )
    penstock_stray_retention_ms: int = prop(
        "penstock.stray.retention.ms", LONG, 7 * 86_400_000, at_least_or(0, -1),
        "How long data is kept that was set aside: directories that the metadata does not know, what a recovery cut "
        "off a log, damaged metadata. -1 keeps it for ever. `penstock log strays` lists it.",
        CLUSTER_WIDE, kafka_default="no such property",
    )


class Compaction(Section, title="Compaction"):
    """When and how logs are compacted."""

    log_cleaner_min_cleanable_ratio: float = prop(
        "log.cleaner.min.cleanable.ratio", DOUBLE, 0.5, between(0, 1),
        "A log is compacted when more than this share of it is uncompacted. Lower: less disk space for old values, "
        "more work.",
        CLUSTER_WIDE,
    )
    log_cleaner_min_compaction_lag_ms: int = prop(
        "log.cleaner.min.compaction.lag.ms", LONG, 0, at_least(0),
        "How long a record is safe from compaction.",
        CLUSTER_WIDE,
    )
    log_cleaner_max_compaction_lag_ms: int = prop(
        "log.cleaner.max.compaction.lag.ms", LONG, INT64_MAX, at_least(1),
        "How long a record may wait for compaction: a log with an older one is compacted whatever its ratio. Segments "
        "are closed at this age, too.",
        CLUSTER_WIDE,
    )
    log_cleaner_delete_retention_ms: int = prop(
        "log.cleaner.delete.retention.ms", LONG, 86_400_000, at_least(0),
        "How long a record without a value is kept after its first compaction, so that readers learn that the key is "
        "gone. A reader that takes longer from the start to the end of the log may miss it.",
        CLUSTER_WIDE,
    )
    log_cleaner_backoff_ms: int = prop(
        "log.cleaner.backoff.ms", LONG, 15_000, at_least(0),
        "How long the broker waits before it looks again for logs to compact, when there was none.",
        CLUSTER_WIDE,
    )
    log_cleaner_io_max_bytes_per_second: float = prop(
        "log.cleaner.io.max.bytes.per.second", DOUBLE, sys.float_info.max, at_least(1),
        "What compaction may read and write per second, together.",
        CLUSTER_WIDE,
    )
    log_cleaner_dedupe_buffer_size: int = prop(
        "log.cleaner.dedupe.buffer.size", LONG, 134_217_728, at_least(DEDUPE_BUFFER_BYTES_MIN),
        "Memory for the keys of the log that is compacted, in the subprocess that does it: some 160 bytes for each. A "
        "log with more keys in its uncompacted part is compacted in several rounds, each of which reads all before it.",
        CLUSTER_WIDE,
    )
    log_cleaner_io_buffer_load_factor: float = prop(
        "log.cleaner.io.buffer.load.factor", DOUBLE, 0.9, between(0, 1),
        "How much of `log.cleaner.dedupe.buffer.size` may be used.",
        CLUSTER_WIDE,
    )


class Durability(Section, title="Durability and disk"):
    """When records are synced to disk, and who waits for it."""

    log_flush_interval_messages: int = prop(
        "log.flush.interval.messages", LONG, INT64_MAX, at_least(1),
        "Sync a partition to disk after so many records. With 1 a record is acknowledged only once it is "
        "on disk.",
        CLUSTER_WIDE, HIGH,
    )
    log_flush_interval_ms: int = prop(
        "log.flush.interval.ms", LONG, None, at_least(0),
        "Sync a partition to disk when its oldest unsynced record is this old. Falls back to "
        "`log.flush.scheduler.interval.ms`.",
        CLUSTER_WIDE, HIGH, fallbacks=(("log.flush.scheduler.interval.ms", 1),),
    )
    log_flush_scheduler_interval_ms: NoAttribute = folded(
        "log.flush.scheduler.interval.ms", LONG, INT64_MAX, at_least(1),
        "The same, where `log.flush.interval.ms` is not set. There is no scheduler here that looks for "
        "logs that are due: each is synced when it is.",
        importance=HIGH,
    )
    log_flush_offset_checkpoint_interval_ms: int = prop(
        "log.flush.offset.checkpoint.interval.ms", INT, 60_000, at_least(0),
        "How often the offset up to which each log is known to be on disk is written down. After a crash,"
        " recovery begins there.",
        importance=HIGH,
    )
    log_flush_start_offset_checkpoint_interval_ms: int = prop(
        "log.flush.start.offset.checkpoint.interval.ms", INT, 60_000, at_least(0),
        "How often the first offset of each log is written down, so that deleted records stay deleted.",
        importance=HIGH,
    )
    num_recovery_threads_per_data_dir: int = prop(
        "num.recovery.threads.per.data.dir", INT, 2, at_least(1),
        "How many logs are read at once when the broker starts after a crash. A change at run time counts from the "
        "next start on.",
        mode=CLUSTER_WIDE, importance=HIGH,
    )
    num_io_threads: int = prop(
        "num.io.threads", INT, 8, at_least(1),
        "Threads that wait for the disk: reads that the page cache cannot answer, and syncs. Requests "
        "themselves are served by one event loop.",
        mode=CLUSTER_WIDE, importance=HIGH,
    )
