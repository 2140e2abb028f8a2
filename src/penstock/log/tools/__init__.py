"""Reading a log's files while no broker uses them: `penstock log dump` and `penstock log verify`.

All functions are generators that read a megabyte at a time, so that logs of any size can be processed.
"""

from penstock.log.tools.dumping import (
    AbortedDump,
    BatchDump,
    IndexEntryDump,
    ProducerDump,
    RecordDump,
    TimeIndexEntryDump,
    as_json,
    dump,
    dump_aborted,
    dump_index,
    dump_snapshot,
    dump_time_index,
)
from penstock.log.tools.verifying import Verdict, verify
from penstock.log.tools.walking import Problem, Severity, segment_bases

__all__ = [
    "AbortedDump",
    "BatchDump",
    "IndexEntryDump",
    "Problem",
    "ProducerDump",
    "RecordDump",
    "Severity",
    "TimeIndexEntryDump",
    "Verdict",
    "as_json",
    "dump",
    "dump_aborted",
    "dump_index",
    "dump_snapshot",
    "dump_time_index",
    "segment_bases",
    "verify",
]
