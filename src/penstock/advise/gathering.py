"""Asks a cluster for all that advice needs: two samples some seconds apart, settings, some records, history."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from penstock.advise.situation import KeySample, Situation, TopicFacts
from penstock.client import EARLIEST, LATEST, ClientError, Cluster, TopicPartition, fetch_range
from penstock.monitor.collector import Collector
from penstock.monitor.history import Span, read_samples
from penstock.monitor.running import Monitor, Settings
from penstock.monitor.samples import Kind
from penstock.planning.catalogue import Catalogue
from penstock.wire.compression import Codec, compress
from penstock.wire.errors import ErrorCode, WireError
from penstock.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from penstock.wire.records import Record, codec_of, iter_batches, iter_records

SECONDS: Final = 5.0
HISTORY_MS: Final = 30 * 60_000
SAMPLED_TOPICS_MAX: Final = 20
SAMPLED_PER_PARTITION: Final = 500
SAMPLED_BYTES_MAX: Final = 4_000_000
"""Of one topic."""
SAMPLED_SIZE_BYTES_MIN: Final = 1_000_000_000
TOPIC_RESOURCE: Final = 2
TOPICS_AT_ONCE_MAX: Final = 500
SETTINGS: Final = ("retention.ms", "cleanup.policy", "compression.type")
CODECS: Final = {"lz4": Codec.LZ4, "zstd": Codec.ZSTD}


def gather(
    cluster: Cluster,
    *,
    seconds: float = SECONDS,
    brokers: Mapping[int, str] | None = None,
    catalogue: Catalogue | None = None,
    per_consumer_per_s: float | None = None,
    per_partition_mb_s: float | None = None,
    message_rate_max: float | None = None,
    pause: Callable[[float], object] = time.sleep,
) -> Situation:
    """The situation of a cluster. Raises ClientError if no broker answers."""
    collector = Collector(cluster, brokers=brokers)
    collector.shape()
    monitor = Monitor(collector, None, Settings(interval_s=seconds, budget=0.99), say=lambda text: None)
    monitor.look()
    pause(seconds)
    monitor.look()
    situation = Situation(
        observed=collector.observed,
        samples=monitor.newest,
        history=_history(cluster, monitor.wall_ms() - HISTORY_MS),
        catalogue=catalogue or Catalogue(),
        per_consumer_per_s=per_consumer_per_s,
        per_partition_mb_s=per_partition_mb_s,
        message_rate_max=message_rate_max,
    )
    keys, facts = _sampled(cluster, situation)
    return replace(situation, keys=keys, facts=facts)


def _history(cluster: Cluster, since_ms: int) -> Span | None:
    try:
        span = read_samples(cluster, since_ms)
    except (ClientError, WireError):
        return None
    return span if span.samples else None


def _sampled(cluster: Cluster, situation: Situation) -> tuple[dict[str, KeySample], dict[str, TopicFacts]]:
    """Records of the busiest and of the largest topics, and the settings of the latter."""
    shape = situation.observed.shape

    def figure(name: str, metric: str) -> float:
        return situation.value(Kind.TOPIC, name, metric) or 0.0

    names = [name for name, topic in shape.topics.items() if not topic.is_internal and not name.startswith("penstock.")]
    skewed = [name for name in names if figure(name, "skew") >= 1.5 and figure(name, "messages_in_per_s") > 0]
    skewed = sorted(skewed, key=lambda name: -figure(name, "messages_in_per_s"))[:SAMPLED_TOPICS_MAX]
    large = [name for name in names if figure(name, "size_bytes") >= SAMPLED_SIZE_BYTES_MIN]
    large = sorted(large, key=lambda name: -figure(name, "size_bytes"))[:SAMPLED_TOPICS_MAX]
    settings = _settings(cluster, large)
    keys, facts = {}, {}
    for name in dict.fromkeys([*skewed, *large]):
        try:
            records, codec = _newest(cluster, name)
        except (ClientError, WireError):
            continue
        keys[name] = KeySample(
            keys=[(record.key, number) for number, record in records],
            values=[record.value for _, record in records],
        )
        if name in large:
            facts[name] = _facts(settings.get(name, {}), records, codec)
    return keys, facts


def _newest(cluster: Cluster, topic: str) -> tuple[list[tuple[int, Record]], str]:
    """Some of the newest records of every partition, and the codec of the last batch."""
    places = [TopicPartition(topic, one.partition) for one in cluster.topics([topic])[topic].partitions]
    ends = cluster.list_offsets(dict.fromkeys(places, LATEST))
    starts = cluster.list_offsets(dict.fromkeys(places, EARLIEST))
    found: list[tuple[int, Record]] = []
    codec, left = "", SAMPLED_BYTES_MAX
    for place in places:
        end = ends[place].offset
        start = max(starts[place].offset, end - SAMPLED_PER_PARTITION)
        if start >= end or left <= 0:
            continue
        for fetched in fetch_range(cluster, topic, place.partition, start, end):
            left -= len(fetched.records)
            for header, batch in iter_batches(fetched.records, partial_tail=True):
                if header.is_control:
                    continue
                codec = codec_of(header.attributes).name.lower()
                found += [(place.partition, one) for one in iter_records(batch) if start <= one.offset < end]
            if left <= 0:
                break
    return found, codec


def _facts(settings: Mapping[str, str], records: Iterable[tuple[int, Record]], codec: str) -> TopicFacts:
    plain = b"".join((record.key or b"") + (record.value or b"") for _, record in records)
    ratios = {}
    if plain:
        ratios = {name: len(plain) / max(1, len(compress(one, plain, None))) for name, one in CODECS.items()}
    retention = settings.get("retention.ms", "")
    return TopicFacts(
        retention_ms=int(retention) if retention.lstrip("-").isdecimal() else None,
        cleanup_policy=settings.get("cleanup.policy", "delete"),
        compression_type=settings.get("compression.type", "producer"),
        stored_codec=codec,
        sampled_ratio=ratios,
    )


def _settings(cluster: Cluster, topics: list[str]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for names in _pieces(topics, TOPICS_AT_ONCE_MAX):
        resources = [DescribeConfigsResource(TOPIC_RESOURCE, name, list(SETTINGS)) for name in names]
        try:
            answer = cluster.any_broker().call(DescribeConfigsRequest(resources), DescribeConfigsResponse)
        except ClientError:
            return found
        for result in answer.results:
            if result.error_code == ErrorCode.NONE:
                found[result.resource_name] = {one.name: one.value or "" for one in result.configs}
    return found


def _pieces(items: list[str], size: int) -> Iterator[list[str]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
