"""Spark's options for its Kafka source → one frozen `SourceOptions`; what Spark refuses is refused for its reason.

Spark hands over option names in lower case and all values as text. An option that nobody knows is refused too: Spark's
own source ignores it, and `startingOffset` for `startingOffsets` then reads other records than was meant.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeVar

from penstock.client import EARLIEST, LATEST, TopicPartition
from penstock.spark.errors import OptionError
from penstock.spark.option_values import (
    boolean,
    duration_ms,
    int_at_least,
    long_number,
    partition_list,
    partition_numbers,
    whole_number,
)

E = TypeVar("E", bound=Enum)

DEFAULT_FETCH_OFFSET_ATTEMPTS: Final = 3
DEFAULT_FETCH_OFFSET_INTERVAL_MS: Final = 1_000
DEFAULT_POLL_TIMEOUT_MS: Final = 120_000
DEFAULT_MAX_TRIGGER_DELAY: Final = "15m"

KAFKA_PREFIX: Final = "kafka."
STRATEGIES: Final = ("subscribe", "subscribePattern", "assign")

OPTIONS: Final = (
    *STRATEGIES, "startingOffsets", "startingOffsetsByTimestamp", "startingTimestamp",
    "startingOffsetsByTimestampStrategy", "endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp",
    "failOnDataLoss", "includeHeaders", "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay",
    "minPartitions", "maxRecordsPerPartition", "groupIdPrefix", "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "partition.metadata.cache.ttl.ms", "penstock.client",
    "penstock.pushFilters", "penstock.stopAtOffsets",
)  # fmt: skip
_BY_LOWER_CASE: Final = {name.lower(): name for name in OPTIONS}
# What somebody may write who comes from the sink, from a pipeline file or from another client.
_MEANT: Final = {"topic": "subscribe", "topics": "subscribe", "path": "subscribe", "pattern": "subscribePattern"}


class Strategy(Enum):
    """What to do where no record is as young as a starting timestamp."""

    ERROR = "error"
    LATEST = "latest"


class Client(Enum):
    """Who fetches: Penstock's own reader, librdkafka, or the first unless only the second can."""

    AUTO = "auto"
    PENSTOCK = "penstock"
    CONFLUENT = "confluent"


@dataclass(frozen=True)
class Selection:
    """Which partitions to read: one of the three is set."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"subscribePattern '{self.pattern}'"
        if self.assigned:
            return f"assign {', '.join(f'{topic}-{partition}' for topic, partition in self.assigned)}"
        return f"subscribe '{','.join(self.topics)}'"


@dataclass(frozen=True)
class _Limit:
    """Where reading starts or ends: one place for all partitions, or one for each."""

    everywhere: int | None = None
    places: Mapping[TopicPartition, int] = field(default_factory=dict)

    def of(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The place of each; those that were written down, where they were."""
        return dict(self.places) if self.everywhere is None else dict.fromkeys(keys, self.everywhere)


class Offsets(_Limit):
    """By offset, of which EARLIEST and LATEST are two."""


class Times(_Limit):
    """By time, in ms since 1970; never negative, which would be EARLIEST or LATEST to a broker."""


@dataclass(frozen=True)
class SourceOptions:
    """Everything that a reader and its tasks need to know. Frozen, picklable, and shy about secrets."""

    selection: Selection
    starting: Offsets | Times
    ending: Offsets | Times
    strategy: Strategy = Strategy.ERROR
    fail_on_data_loss: bool = True
    include_headers: bool = False
    offsets_per_trigger_max: int | None = None
    offsets_per_trigger_min: int | None = None
    trigger_delay_max_ms: int = 900_000
    partitions_min: int | None = None
    records_per_partition_max: int | None = None
    group_id: str | None = None
    poll_timeout_ms: int | None = None
    """None: as long as Spark's default says, unless the client's own `default.api.timeout.ms` is set."""
    fetch_offset_attempts: int = DEFAULT_FETCH_OFFSET_ATTEMPTS
    fetch_offset_interval_ms: int = DEFAULT_FETCH_OFFSET_INTERVAL_MS
    client: Client = Client.AUTO
    push_filters: bool = False
    stop_at: Mapping[TopicPartition, int] = field(default_factory=dict)
    """For streams: offsets at which partitions end, whatever their logs hold; partitions without one are not read."""
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The `kafka.*` options without their prefix."""

    @property
    def read_committed(self) -> bool:
        return self.properties.get("isolation.level", "").lower() == "read_committed"


def check_options(options: Mapping[str, str]) -> SourceOptions:
    """What can be said when a DataFrame is made, before Spark says whether it is a batch or a stream."""
    texts = _texts(options)
    return _read(texts, default_start=EARLIEST)


def batch_options(options: Mapping[str, str]) -> SourceOptions:
    """The options of `spark.read`."""
    texts = _texts(options)
    read = _read(texts, default_start=EARLIEST)
    if read.starting == Offsets(LATEST):
        raise OptionError("starting offset can't be latest for batch queries on Kafka: use 'earliest' or offsets")
    if read.ending == Offsets(EARLIEST):
        raise OptionError("ending offset can't be earliest for batch queries on Kafka: use 'latest' or offsets")
    _refuse_place(read.starting, LATEST, "startingOffsets for {} can't be latest for batch queries on Kafka")
    _refuse_place(read.ending, EARLIEST, "ending offset for {} can't be earliest for batch queries on Kafka")
    _check_order(read.starting, read.ending)
    return read


def stream_options(options: Mapping[str, str]) -> SourceOptions:
    """The options of `spark.readStream`."""
    texts = _texts(options)
    for name, what in (
        ("endingoffsets", "ending offset"),
        ("endingoffsetsbytimestamp", "ending timestamp"),
        ("endingtimestamp", "ending timestamp"),
    ):
        if name in texts:
            raise OptionError(
                f"{what} not valid in streaming queries: leave {_BY_LOWER_CASE[name]} out, or use spark.read; "
                ".trigger(availableNow=True) reads what is there now and ends"
            )
    return _read(texts, default_start=LATEST)


# Reading


def _read(texts: dict[str, str], *, default_start: int) -> SourceOptions:
    _check_names(texts)
    properties = {name[len(KAFKA_PREFIX) :]: value for name, value in texts.items() if name.startswith(KAFKA_PREFIX)}
    selection = _selection(texts)
    _check_properties(properties)
    _check_cache(texts)
    smallest = long_number(texts, "minOffsetsPerTrigger", at_least=0)
    largest = long_number(texts, "maxOffsetsPerTrigger", at_least=1)
    if smallest is not None and largest is not None and smallest > largest:
        raise OptionError(
            f"The value of minOffsetPerTrigger({smallest}) is higher than the maxOffsetsPerTrigger({largest})."
        )
    return SourceOptions(
        selection=selection,
        starting=_limit(texts, "starting", default_start),
        ending=_limit(texts, "ending", LATEST),
        strategy=_choice(texts, "startingOffsetsByTimestampStrategy", Strategy, Strategy.ERROR),
        fail_on_data_loss=boolean(texts, "failOnDataLoss", True),
        include_headers=boolean(texts, "includeHeaders", False),
        offsets_per_trigger_max=largest,
        offsets_per_trigger_min=smallest,
        trigger_delay_max_ms=duration_ms(texts, "maxTriggerDelay", DEFAULT_MAX_TRIGGER_DELAY),
        partitions_min=int_at_least(texts, "minPartitions", 1, "minPartitions must be positive"),
        records_per_partition_max=long_number(texts, "maxRecordsPerPartition", at_least=1),
        group_id=properties.get("group.id") or texts.get("groupidprefix"),
        poll_timeout_ms=long_number(texts, "kafkaConsumer.pollTimeoutMs", at_least=1),
        fetch_offset_attempts=int_at_least(texts, "fetchOffset.numRetries", 1) or DEFAULT_FETCH_OFFSET_ATTEMPTS,
        fetch_offset_interval_ms=_or(
            long_number(texts, "fetchOffset.retryIntervalMs", at_least=0), DEFAULT_FETCH_OFFSET_INTERVAL_MS
        ),
        client=_choice(texts, "penstock.client", Client, Client.AUTO),
        push_filters=boolean(texts, "penstock.pushFilters", False),
        stop_at=_stop_at(texts),
        properties=properties,
    )


def _stop_at(texts: Mapping[str, str]) -> Mapping[TopicPartition, int]:
    text = texts.get("penstock.stopatoffsets")
    return {} if text is None else partition_numbers(text, "penstock.stopAtOffsets", '{"topicA":{"0":23,"1":45}}')


def _texts(options: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): str(value) for name, value in options.items()}


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


def _check_names(texts: Mapping[str, str]) -> None:
    for name in sorted(texts):
        if name in _BY_LOWER_CASE or name.startswith(KAFKA_PREFIX):
            continue
        meant = _MEANT.get(name) or _nearest(name)
        hint = f"did you mean {meant}?" if meant else f"the options are {', '.join(sorted(OPTIONS))} and kafka.*"
        raise OptionError(f"unknown option '{name}' for the penstock source: {hint}")


def _nearest(name: str) -> str | None:
    if name.startswith(("bootstrap.servers", "sasl.", "ssl.", "security.", "isolation.")):
        return KAFKA_PREFIX + name
    close = difflib.get_close_matches(name, list(_BY_LOWER_CASE), n=1, cutoff=0.75)
    return _BY_LOWER_CASE[close[0]] if close else None


def _selection(texts: Mapping[str, str]) -> Selection:
    given = [name for name in STRATEGIES if name.lower() in texts]
    names = ", ".join(STRATEGIES)
    if not given:
        raise OptionError(f"One of the following options must be specified for Kafka source: {names}")
    if len(given) > 1:
        raise OptionError(
            f"Only one of the following options can be specified for Kafka source: {names}; given: {', '.join(given)}"
        )
    name = given[0]
    value = texts[name.lower()]
    if name == "subscribe":
        topics = tuple(dict.fromkeys(topic.strip() for topic in value.split(",") if topic.strip()))
        if not topics:
            raise OptionError(f"No topics to subscribe to as specified value for option 'subscribe' is '{value}'")
        return Selection(topics=topics)
    if name == "subscribePattern":
        return Selection(pattern=_pattern(value))
    if not value.strip().startswith("{"):
        raise OptionError(f"No topicpartitions to assign as specified value for option 'assign' is '{value}'")
    assigned = partition_list(value)
    if not assigned:
        raise OptionError(f"No topicpartitions to assign as specified value for option 'assign' is '{value}'")
    return Selection(assigned=assigned)


def _pattern(value: str) -> str:
    pattern = value.strip()
    if not pattern:
        raise OptionError(
            f"Pattern to subscribe is empty as specified value for option 'subscribePattern' is '{value}'"
        )
    try:
        re.compile(pattern)
    except re.error as error:
        raise OptionError(
            f"subscribePattern: '{pattern}' cannot be read as a regular expression of Python: {error}. Most of Java's "
            "syntax is the same; \\p{…} classes and &&-intersections have to be written out"
        ) from None
    return pattern


def _check_properties(properties: Mapping[str, str]) -> None:
    if "auto.offset.reset" in properties:
        raise OptionError(
            "Kafka option 'auto.offset.reset' is not supported. Instead set the source option 'startingOffsets' to "
            "'earliest' or 'latest' to specify where to start. Structured Streaming manages which offsets are consumed "
            "internally, rather than relying on the kafkaConsumer to do it. This will ensure that no data is missed "
            "when new topics/partitions are dynamically subscribed. Note that 'startingOffsets' only applies when a "
            "new Streaming query is started, and that resuming will always pick up from where the query left off."
        )
    for part in ("key", "value"):
        if f"{part}.deserializer" in properties:
            raise OptionError(
                f"Kafka option '{part}.deserializer' is not supported as {part}s are deserialized as byte arrays with "
                f"ByteArrayDeserializer. Use DataFrame operations to explicitly deserialize the {part}s."
            )
    for name in ("enable.auto.commit", "interceptor.classes"):
        if name in properties:
            raise OptionError(f"Kafka option '{name}' is not supported")
    if not properties.get("bootstrap.servers", "").strip():
        raise OptionError("Option 'kafka.bootstrap.servers' must be specified for configuring Kafka consumer")


def _check_cache(texts: Mapping[str, str]) -> None:
    """Checked as in Spark, and of no effect: metadata is asked for together with offsets, each time."""
    reason = (
        "Option 'partition.metadata.cache.ttl.ms' must be a positive number of milliseconds, or -1 to disable caching"
    )
    if long_number(texts, "partition.metadata.cache.ttl.ms", at_least=-1, message=reason) == 0:
        raise OptionError(reason)


def _limit(texts: Mapping[str, str], side: str, default: int) -> Offsets | Times:
    """In Spark's order: one timestamp for all, a timestamp for each partition, offsets."""
    if (text := texts.get(f"{side}timestamp")) is not None:
        try:
            everywhere = whole_number(text)
        except ValueError:
            raise OptionError(
                f"Expected a single long value, got {text.strip()}: {side}Timestamp is in milliseconds"
            ) from None
        return _times(side, Times(everywhere))
    if (text := texts.get(f"{side}offsetsbytimestamp")) is not None:
        example = '{"topicA": {"0": 123456789, "1": 123456789}, "topicB": {"0": 123456789, "1": 123456789}}'
        return _times(side, Times(places=partition_numbers(text, f"{side}OffsetsByTimestamp", example)))
    text = texts.get(f"{side}offsets")
    if text is None:
        return Offsets(everywhere=default)
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return Offsets(everywhere=EARLIEST if word == "earliest" else LATEST)
    example = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
    places = partition_numbers(text, f"{side}Offsets", example)
    for (topic, partition), offset in places.items():
        if offset < EARLIEST:
            raise OptionError(
                f"{side}Offsets: {offset} for {topic}-{partition} is no offset; use -2 for earliest, -1 for latest"
            )
    return Offsets(places=places)


def _times(side: str, limit: Times) -> Times:
    for time_ms in (*limit.places.values(), limit.everywhere or 0):
        if time_ms < 0:
            raise OptionError(
                f"{time_ms} is no {side} timestamp: they are milliseconds since 1970, and never negative. For earliest "
                f"and latest use {side}Offsets"
            )
    return limit


def _refuse_place(limit: Offsets | Times, refused: int, message: str) -> None:
    if isinstance(limit, Times):
        return
    for (topic, partition), offset in limit.places.items():
        if offset == refused:
            raise OptionError(message.format(f"{topic}-{partition}"))


def _check_order(starting: Offsets | Times, ending: Offsets | Times) -> None:
    """What can be told before anything is looked up; of offsets, only those that are real."""
    if type(starting) is not type(ending):
        return
    what = "timestamp" if isinstance(starting, Times) else "offset"
    if starting.places and ending.places and starting.places.keys() != ending.places.keys():
        odd = sorted(starting.places.keys() ^ ending.places.keys())
        names = ", ".join(f"{topic}-{partition}" for topic, partition in odd)
        raise OptionError(f"starting and ending {what}s name different partitions, these only one of them: {names}")
    pairs = [("", starting.everywhere, ending.everywhere)]
    keys = starting.places or ending.places
    ends = ending.of(keys)
    pairs += [
        (f" for topic {key.topic} partition {key.partition}", start, ends[key])
        for key, start in starting.of(keys).items()
    ]
    for where, start, end in pairs:
        if start is not None and end is not None and start > end >= 0:
            raise OptionError(f"The specified start {what} {start} is greater than the end {what} {end}{where}")


def _choice(texts: Mapping[str, str], name: str, kind: type[E], default: E) -> E:
    text = texts.get(name.lower())
    if text is None:
        return default
    for one in kind:
        if one.value == text.strip().lower():
            return one
    raise OptionError(f"{name}: '{text}' is not one of {', '.join(one.value for one in kind)}")
