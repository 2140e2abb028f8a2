"""Tasks that read with Penstock's client: raw batches, decoded to Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from penstock.arrow import RecordDecoder
from penstock.client import ClientSettings, Cluster, IsolationLevel, fetch_range
from penstock.spark.backend import SourcePartition
from penstock.spark.options import SourceOptions
from penstock.wire.uuids import parse_uuid


class PenstockReader:
    """Reads ranges, one after another, over connections that it keeps."""

    def __init__(self, settings: ClientSettings, options: SourceOptions) -> None:
        self._cluster = Cluster(settings)
        self._check_crcs = settings.check_crcs
        self._include_headers = options.include_headers
        committed = settings.read_committed
        self._isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED

    def read(self, part: SourcePartition, start: int) -> Iterator[tuple[Iterable[pa.RecordBatch], int]]:
        topic_id = None if part.topic_id is None else parse_uuid(part.topic_id)
        if topic_id is not None and self._cluster.known_topic(part.topic).topic_id != topic_id:
            # Known from an earlier task, perhaps; if it is still another one when asked again, it is another one.
            self._cluster.forget(part.topic)
        decoder = RecordDecoder(
            part.topic,
            part.partition,
            start=start,
            end=part.end,
            include_headers=self._include_headers,
            check_crcs=self._check_crcs,
        )
        fetched = fetch_range(
            self._cluster, part.topic, part.partition, start, part.end, topic_id=topic_id, isolation=self._isolation
        )
        for piece in fetched:
            yield decoder.decode(piece.records, piece.aborted), piece.next_position

    def close(self) -> None:
        self._cluster.close()
