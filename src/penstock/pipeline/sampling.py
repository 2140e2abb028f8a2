"""Reads a few records of a topic, the newest of each partition, to see what they look like."""

from __future__ import annotations

from penstock.client import EARLIEST, LATEST, Cluster, IsolationLevel, PartitionRange, TopicPartition, fetch_ranges
from penstock.pipeline.inference import Sampled
from penstock.wire.records import CONTROL_FLAG, iter_batches, iter_records

RECORDS_DEFAULT = 1_000


def sample_topic(cluster: Cluster, topic: str, records_max: int = RECORDS_DEFAULT) -> list[Sampled]:
    """Up to `records_max` committed records; UnknownTopic if there is no such topic."""
    places = [TopicPartition(topic, one.partition) for one in cluster.known_topic(topic).partitions]
    starts = cluster.list_offsets(dict.fromkeys(places, EARLIEST))
    ends = cluster.list_offsets(dict.fromkeys(places, LATEST), isolation=IsolationLevel.READ_COMMITTED)
    share = max(1, records_max // max(1, len(places)))
    begins = {place.partition: max(starts[place].offset, ends[place].offset - share) for place in places}
    ranges = [
        PartitionRange(topic, place.partition, begins[place.partition], ends[place].offset)
        for place in places
        if ends[place].offset > begins[place.partition]
    ]
    found: list[Sampled] = []
    for fetched in fetch_ranges(cluster, ranges, isolation=IsolationLevel.READ_COMMITTED) if ranges else ():
        for header, batch in iter_batches(fetched.records):
            if header.attributes & CONTROL_FLAG:
                continue
            found += [
                Sampled(record.key, record.value)
                for record in iter_records(batch)
                if record.offset >= begins[fetched.partition]
            ]
    return found[:records_max]
