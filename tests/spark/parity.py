"""The same reads through Spark's own Kafka connector and through Penstock's source: what is written, and what is asked.

`tools/record_spark_parity.py` asks Spark's connector and keeps the rows in `fixtures/parity.json`; `test_parity.py`
asks Penstock's source and compares. A new broker is filled in the same way each time, so offsets and timestamps agree.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

FIXTURE = Path(__file__).parent / "fixtures" / "parity.json"

PLAIN, OTHER, TRIMMED, STAMPED = "parity-plain", "parity-other", "parity-trimmed", "parity-stamped"
BASE_MS = 1_700_000_000_000
KEPT = {"retention.ms": "-1"}
"""The timestamps are old, and would not be kept."""
TRIMMED_TO = 6
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LONG_BYTES = 64
"""Longer values are kept as their digests."""
TRANSACTIONS, COMPACTED = "parity-transactions", "parity-compacted"
ISOLATIONS = ("read_committed", "read_uncommitted")
COMPACTION_TIMEOUT_S = 60
KEY_COUNTS = (2, 3, 7, 12)
"""Numbers of partitions over which keys are placed."""


@dataclass(frozen=True)
class Case:
    """A read. `without`: columns that differ from run to run."""

    name: str
    options: Mapping[str, str]
    stream: bool = False
    without: tuple[str, ...] = ()


def offsets(**topics: dict[int, int]) -> str:
    return json.dumps({name.replace("_", "-"): {str(k): v for k, v in one.items()} for name, one in topics.items()})


def _isolation(level: str) -> dict[str, Any]:
    return {"kafka.isolation.level": level}


def _case(name: str, *, stream: bool = False, without: tuple[str, ...] = (), **options: Any) -> Case:
    return Case(name, {"includeHeaders": "true"} | options, stream, without)


CASES = (
    _case("everything", subscribe=PLAIN),
    _case("without headers", subscribe=PLAIN, includeHeaders="false"),
    _case("two topics", subscribe=f"{OTHER},{PLAIN}"),
    _case("a pattern", subscribePattern="parity-(plain|other)"),
    _case("a pattern is found anywhere", subscribePattern="ity-o"),
    _case("a pattern of nothing", subscribePattern="no-such-.*"),
    _case("assigned", assign=json.dumps({PLAIN: [0, 2], OTHER: [0]})),
    _case("from offsets", subscribe=PLAIN, startingOffsets=offsets(parity_plain={0: 5, 1: -2, 2: 30})),
    _case("to offsets", subscribe=PLAIN, endingOffsets=offsets(parity_plain={0: 5, 1: -1, 2: 7})),
    _case(
        "between offsets",
        subscribe=PLAIN,
        startingOffsets=offsets(parity_plain={0: 5, 1: 0, 2: 3}),
        endingOffsets=offsets(parity_plain={0: 17, 1: 0, 2: 4}),
    ),
    _case("from a timestamp", subscribe=OTHER, startingTimestamp=str(BASE_MS + 15)),
    _case("to a timestamp", subscribe=PLAIN, endingTimestamp=str(BASE_MS + 22)),
    _case("between timestamps", subscribe=OTHER, startingTimestamp=str(BASE_MS + 3), endingTimestamp=str(BASE_MS + 9)),
    _case(
        "from a timestamp, or the latest",
        subscribe=PLAIN,
        startingTimestamp=str(BASE_MS + 25),
        startingOffsetsByTimestampStrategy="latest",
    ),
    _case(
        "between timestamps of each partition",
        subscribe=OTHER,
        startingOffsetsByTimestamp=offsets(parity_other={0: BASE_MS + 3, 1: BASE_MS}),
        endingOffsetsByTimestamp=offsets(parity_other={0: BASE_MS + 10**9, 1: BASE_MS + 4}),
    ),
    _case("more tasks than partitions", subscribe=PLAIN, minPartitions="7"),
    _case("few records for each task", subscribe=PLAIN, maxRecordsPerPartition="9"),
    _case("a log that does not begin at 0", subscribe=TRIMMED),
    _case(
        "before the beginning of a log",
        subscribe=TRIMMED,
        startingOffsets=offsets(parity_trimmed={0: 2}),
        failOnDataLoss="false",
    ),
    _case("log append time", subscribe=STAMPED, without=("timestamp",)),
    _case("read committed", subscribe=PLAIN, **_isolation("read_committed")),
    _case("a stream", stream=True, subscribe=PLAIN, startingOffsets="earliest"),
    _case("a stream in steps", stream=True, subscribe=PLAIN, startingOffsets="earliest", maxOffsetsPerTrigger="17"),
    _case(
        "a stream in steps from offsets",
        stream=True,
        subscribe=f"{PLAIN},{OTHER}",
        startingOffsets=offsets(parity_plain={0: 5, 1: -1, 2: 30}, parity_other={0: -2, 1: 8}),
        maxOffsetsPerTrigger="40",
        minPartitions="5",
    ),
    _case("a stream from a timestamp", stream=True, subscribe=OTHER, startingTimestamp=str(BASE_MS + 15)),
    _case("a stream from the latest", stream=True, subscribe=PLAIN),
)

REFUSED: Mapping[str, tuple[bool, Mapping[str, str]]] = {
    "no selection": (False, {}),
    "two selections": (False, {"subscribe": PLAIN, "assign": f'{{"{PLAIN}":[0]}}'}),
    "no topics": (False, {"subscribe": ","}),
    "no pattern": (False, {"subscribePattern": ""}),
    "no assignment": (False, {"assign": "x"}),
    "assignment that is none": (False, {"assign": '{"a":"b"}'}),
    "auto.offset.reset": (False, {"subscribe": PLAIN, "kafka.auto.offset.reset": "earliest"}),
    "key.deserializer": (False, {"subscribe": PLAIN, "kafka.key.deserializer": "x"}),
    "value.deserializer": (False, {"subscribe": PLAIN, "kafka.value.deserializer": "x"}),
    "enable.auto.commit": (False, {"subscribe": PLAIN, "kafka.enable.auto.commit": "true"}),
    "interceptor.classes": (False, {"subscribe": PLAIN, "kafka.interceptor.classes": "x"}),
    "min over max": (True, {"subscribe": PLAIN, "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}),
    "no partitions": (False, {"subscribe": PLAIN, "minPartitions": "0"}),
    "start at the latest": (False, {"subscribe": PLAIN, "startingOffsets": "latest"}),
    "start of one at the latest": (False, {"subscribe": OTHER, "startingOffsets": offsets(parity_other={0: -1, 1: 0})}),
    "end at the earliest": (False, {"subscribe": PLAIN, "endingOffsets": "earliest"}),
    "end of one at the earliest": (False, {"subscribe": OTHER, "endingOffsets": offsets(parity_other={0: -2, 1: 0})}),
    "offsets that are none": (False, {"subscribe": PLAIN, "startingOffsets": "x"}),
    "timestamp that is none": (False, {"subscribe": PLAIN, "startingTimestamp": "x"}),
    "an end of a stream": (True, {"subscribe": PLAIN, "endingOffsets": "latest"}),
    "an end of a stream by timestamp": (True, {"subscribe": PLAIN, "endingOffsetsByTimestamp": '{"a":{"0":1}}'}),
    "not all partitions": (False, {"subscribe": PLAIN, "startingOffsets": offsets(parity_plain={0: 0})}),
    "backwards": (
        False,
        {
            "subscribe": OTHER,
            "startingOffsets": offsets(parity_other={0: 9, 1: 0}),
            "endingOffsets": offsets(parity_other={0: 8, 1: 20}),
        },
    ),
    "backwards by time": (
        False,
        {
            "subscribe": OTHER,
            "startingOffsetsByTimestamp": offsets(parity_other={0: 9, 1: 0}),
            "endingOffsetsByTimestamp": offsets(parity_other={0: 8, 1: 20}),
        },
    ),
    "a start behind the log": (
        False,
        {"subscribe": OTHER, "startingOffsets": offsets(parity_other={0: 99, 1: 0}), "failOnDataLoss": "false"},
    ),
    "an end before the start, by time": (
        False,
        {
            "subscribe": OTHER,
            "startingOffsets": offsets(parity_other={0: 9, 1: 0}),
            "endingTimestamp": str(BASE_MS + 3),
        },
    ),
    "an end before the log": (False, {"subscribe": TRIMMED, "endingOffsets": offsets(parity_trimmed={0: 2})}),
    "no record as young": (False, {"subscribe": PLAIN, "startingTimestamp": str(BASE_MS + 10**9)}),
}
"""What is refused: (of a stream, options). Which one it is has to be said in the same words."""


def fill(bootstrap: str) -> None:
    """Writes everything that is read."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [
        NewTopic(PLAIN, 3, 1, config=KEPT),
        NewTopic(OTHER, 2, 1, config=KEPT),
        NewTopic(TRIMMED, 1, 1, config=KEPT),
        NewTopic(STAMPED, 1, 1, config={"message.timestamp.type": "LogAppendTime"}),
        *(NewTopic(keys_topic(count), count, 1) for count in KEY_COUNTS),
    ]
    for created in admin.create_topics(topics).values():
        created.result(timeout=30)
    for codec in CODECS:
        write(bootstrap, PLAIN, 0, 8, compression_type=codec)
    write(bootstrap, PLAIN, 2, 33)
    write(bootstrap, OTHER, 0, 20)
    write(bootstrap, OTHER, 1, 20)
    write(bootstrap, TRIMMED, 0, 10)
    write(bootstrap, STAMPED, 0, 4)
    for deleted in admin.delete_records([TopicPartition(TRIMMED, 0, TRIMMED_TO)]).values():
        deleted.result(timeout=30)


def write(bootstrap: str, topic: str, partition: int, count: int, **properties: object) -> None:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 100, "enable.idempotence": True} | named)
    headers: Any = (None, [], [("a", b"1"), ("a", None), ("ü", b"")], [("only", b"\x00\xff")])
    for number in range(count):
        producer.produce(
            topic,
            (None, b"", b"value %d" % number, bytes(range(256)) * 3)[number % 4],
            (None, b"", b"key %d" % number)[number % 3],
            partition=partition,
            timestamp=BASE_MS + number,
            headers=headers[number % 4],
        )
    assert producer.flush(30) == 0


def fill_logs(bootstrap: str) -> None:
    """Writes what only some brokers can hold: aborted transactions and their markers, and a log with gaps.

    It is read from the recorded bytes of the logs.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})
    # A segment ends where the next record is older by this much; only such are compacted.
    compacted = {"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.001"}
    topics = [NewTopic(TRANSACTIONS, 1, 1, config=KEPT), NewTopic(COMPACTED, 1, 1, config=KEPT | compacted)]
    for created in admin.create_topics(topics).values():
        created.result(timeout=30)
    one, other = (Producer({"bootstrap.servers": bootstrap, "transactional.id": name}) for name in ("one", "other"))
    for producer in (one, other):
        producer.init_transactions(60)
    number = 0
    # Both have transactions open at the same time; which of them are aborted is not the same.
    for commit_one, commit_other in ((True, False), (False, True), (False, False), (True, True), (True, False)):
        for producer in (one, other):
            producer.begin_transaction()
        for producer in (one, other, one, other):
            number += 1
            producer.produce(TRANSACTIONS, b"value %d" % number, b"key", partition=0, timestamp=BASE_MS + number)
            assert producer.flush(30) == 0
        write(bootstrap, TRANSACTIONS, 0, 2)
        for producer, commit in ((one, commit_one), (other, commit_other)):
            (producer.commit_transaction if commit else producer.abort_transaction)(60)
    plain = Producer({"bootstrap.servers": bootstrap})
    for number in range(40):
        key, stamp = b"key %d" % (number % 7), BASE_MS + 700 * number
        plain.produce(COMPACTED, b"value %d" % number, key, partition=0, timestamp=stamp)
        assert plain.flush(30) == 0


def log_case(topic: str, isolation: str) -> Case:
    return _case(f"{topic}, {isolation}", subscribe=topic, **_isolation(isolation))


def keys_topic(partitions: int) -> str:
    return f"parity-keys-{partitions}"


def placed_keys() -> list[bytes]:
    """Keys to be placed: of many lengths, because murmur2 treats the last bytes of a key on their own."""
    return [bytes((7 * length + index) % 256 for index in range(length)) for length in range(1, 40)] + [
        b"user-%d" % number for number in range(60)
    ]


def readable(rows: Iterable[Any], without: tuple[str, ...] = ()) -> list[list[object]]:
    """Rows as JSON, in the order of topic, partition and offset; timestamps in ms."""
    found = sorted((dict(row) for row in rows), key=lambda row: (row["topic"], row["partition"], row["offset"]))
    names = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers")
    return [[_readable(row[name]) for name in names if name in row and name not in without] for row in found]


def _readable(value: object) -> object:
    if isinstance(value, (bytes, bytearray)):
        long = len(value) > LONG_BYTES
        return f"sha256 {hashlib.sha256(value).hexdigest()}" if long else base64.b64encode(value).decode()
    if isinstance(value, list):
        return [[_readable(one["key"]), _readable(one["value"])] for one in value]
    if hasattr(value, "timestamp"):
        return round(value.timestamp() * 1000)
    return value
