"""The properties of a broker that concern compaction; the first four are defaults of its topics'."""

from __future__ import annotations

import sys

from penstock.config.definitions import INT64_MAX, Definition, Kind, UpdateMode, at_least, between

CLUSTER_WIDE = UpdateMode.CLUSTER_WIDE
DEDUPE_BUFFER_BYTES_MIN = 1024 * 1024

COMPACTION = (
    Definition(
        "log.cleaner.min.cleanable.ratio", Kind.DOUBLE, 0.5, between(0, 1),
        "A log is compacted when more than this share of it is uncompacted. Lower: less disk space for old values, "
        "more work.",
        CLUSTER_WIDE,
    ),
    Definition(
        "log.cleaner.min.compaction.lag.ms", Kind.LONG, 0, at_least(0),
        "How long a record is safe from compaction.",
        CLUSTER_WIDE,
    ),
    Definition(
        "log.cleaner.max.compaction.lag.ms", Kind.LONG, INT64_MAX, at_least(1),
        "How long a record may wait for compaction: a log with an older one is compacted whatever its ratio. Segments "
        "are closed at this age, too.",
        CLUSTER_WIDE,
    ),
    Definition(
        "log.cleaner.delete.retention.ms", Kind.LONG, 86_400_000, at_least(0),
        "How long a record without a value is kept after its first compaction, so that readers learn that the key is "
        "gone. A reader that takes longer from the start to the end of the log may miss it.",
        CLUSTER_WIDE,
    ),
    Definition(
        "log.cleaner.backoff.ms", Kind.LONG, 15_000, at_least(0),
        "How long the broker waits before it looks again for logs to compact, when there was none.",
        CLUSTER_WIDE,
    ),
    Definition(
        "log.cleaner.io.max.bytes.per.second", Kind.DOUBLE, sys.float_info.max, at_least(1),
        "What compaction may read and write per second, together.",
        CLUSTER_WIDE,
    ),
    Definition(
        "log.cleaner.dedupe.buffer.size", Kind.LONG, 134_217_728, at_least(DEDUPE_BUFFER_BYTES_MIN),
        "Memory for the keys of the log that is compacted, in the subprocess that does it: some 160 bytes for each. A "
        "log with more keys in its uncompacted part is compacted in several rounds, each of which reads all before it.",
        CLUSTER_WIDE,
    ),
    Definition(
        "log.cleaner.io.buffer.load.factor", Kind.DOUBLE, 0.9, between(0, 1),
        "How much of `log.cleaner.dedupe.buffer.size` may be used.",
        CLUSTER_WIDE,
    ),
)
