"""Decodes raw record batches to Arrow at memory speed, without a Python object per record.

    decoder = RecordDecoder("orders", 0, start=0, end=1_000_000)
    for fetched in fetch_range(cluster, "orders", 0, 0, 1_000_000):
        for batch in decoder.decode(fetched.records, fetched.aborted):
            ...     # a pyarrow.RecordBatch: key, value, topic, partition, offset, timestamp, timestampType

Theory of operation
-------------------
A record is a length and then fields whose lengths are varints, so the position of a field depends on everything before
it, in this record and in earlier ones. Decoding record by record costs some two microseconds each in Python. Here only
the record lengths are followed from record to record (`positions`), and even that in parallel over all batches. Once
the start of each record is known, every other field is read for all records together, with numpy (`fields`, `varints`,
`headers`). Keys and values are then copied once, by Arrow (`columns`): an array is laid over the raw bytes whose
elements alternate between a value and the bytes up to the next value, and `take` picks every second one.

Batches that a reader must not see are left out before any record is decoded (`batches`): control batches, aborted
transactions (`transactions`), batches outside the requested offsets. Checksums are verified. Invalid batches raise
`CorruptBatch`, which names the partition and the offset; lengths and counts are checked before they are used.

It needs numpy and pyarrow, which `pip install penstock-streaming[spark]` installs.
"""

from penstock.arrow.columns import arrow_schema
from penstock.arrow.decode import RecordDecoder
from penstock.arrow.errors import CorruptBatch

__all__ = ["CorruptBatch", "RecordDecoder", "arrow_schema"]
