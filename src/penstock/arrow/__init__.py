"""Raw record batches → Arrow, at the speed of memory rather than of Python objects.

    decoder = RecordDecoder("orders", 0, start=0, end=1_000_000)
    for fetched in fetch_range(cluster, "orders", 0, 0, 1_000_000):
        for batch in decoder.decode(fetched.records, fetched.aborted):
            ...     # a pyarrow.RecordBatch: key, value, topic, partition, offset, timestamp, timestampType

Theory of operation
-------------------
A record is a length and then fields whose lengths are varints, so where a field begins depends on all before it, in
this record and in those before. Decoding them one by one costs Python some two microseconds each. Here only one thing
is followed from record to record, the length (`positions`), and even that in step over all batches at once. Knowing
where each record begins, every other field is read for all records together, with numpy (`fields`, `varints`,
`headers`). Keys and values are then copied once, by Arrow (`columns`): an array is laid over the raw bytes whose
elements are, in turn, a value and what stands between two values, and `take` picks every second one.

What must not reach a reader is left out by batch, before any record is looked at (`batches`): control batches, aborted
transactions (`transactions`), batches outside the wanted offsets. Checksums are verified. Batches that break the rules
raise `CorruptBatch`, which names the partition and the offset; lengths and counts are checked before they are used.

numpy and pyarrow are needed, which `pip install penstock-streaming[spark]` brings.
"""

from penstock.arrow.columns import arrow_schema
from penstock.arrow.decode import RecordDecoder
from penstock.arrow.errors import CorruptBatch

__all__ = ["CorruptBatch", "RecordDecoder", "arrow_schema"]
