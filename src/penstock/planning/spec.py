"""A whole design as a TOML file: topics with their rates, a broker's hardware, zones, prices.

Every entry is checked before anything is computed. An entry that is unknown, has the wrong type, is out of bounds or
contradicts another is refused with its line.

    [cluster]   zones, replication_factor, per_partition_mb_s
    [broker]    hardware of one broker, and `count` if the cluster exists already
    [[topics]]  one table for each topic, or for `count` topics that are alike
    [cost]      what is billed
    [values]    thresholds and prices in place of the catalogue's, as `[values.price]`
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from math import inf, isfinite
from typing import Any, Final

from penstock.planning.brokers import COPIES_MAX, MB, ZONES_MAX, BrokerSpec
from penstock.planning.catalogue import Catalogue, PlanError, leaves
from penstock.planning.cost import CODECS, compression_ratio
from penstock.planning.storage import GB
from penstock.planning.toml_lines import line_of

TOPICS_MAX: Final = 1_000_000
"""Tables of topics in one spec. Topics that are alike share one, with `count`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One key that a table may have."""

    unit: str
    text: str
    default: float | str | bool | None = None
    """None: the entry is required, unless `optional`."""
    optional: bool = False
    minimum: float = 0.0
    maximum: float = inf
    whole: bool = False
    above_zero: bool = False


CLUSTER: Final[Mapping[str, Entry]] = {
    "name": Entry(unit="text", text="A name for the report.", default="cluster"),
    "zones": Entry(
        unit="zones", text="Zones that brokers are spread over.", default=1, minimum=1, maximum=ZONES_MAX, whole=True
    ),
    "replication_factor": Entry(
        unit="copies", text="Of topics that say nothing.", default=3, minimum=1, maximum=COPIES_MAX, whole=True
    ),
    "per_partition_mb_s": Entry(
        unit="MB/s", text="What one partition takes, measured with `penstock perf produce`.", above_zero=True
    ),
}
BROKER: Final[Mapping[str, Entry]] = {
    "network_mb_s": Entry(unit="MB/s", text="Network, in each direction.", above_zero=True),
    "disk_write_mb_s": Entry(unit="MB/s", text="What its disks write, replicas included.", above_zero=True),
    "disk_read_mb_s": Entry(unit="MB/s", text="What its disks read; as they write if not given.", optional=True),
    "disk_gb": Entry(unit="GB", text="Size of its disks.", above_zero=True),
    "page_cache_gb": Entry(unit="GB", text="Memory that is left for the page cache.", default=0),
    "tested_messages_per_s": Entry(
        unit="messages/s", text="The most that one broker was measured to take.", optional=True, above_zero=True
    ),
    "rebuild_mb_s": Entry(
        unit="MB/s", text="Rate at which a lost broker's data is copied back.", optional=True, above_zero=True
    ),
    "count": Entry(unit="brokers", text="Brokers of a cluster that exists.", optional=True, minimum=1, whole=True),
}
TOPIC: Final[Mapping[str, Entry]] = {
    "name": Entry(unit="text", text="The topic's name."),
    "count": Entry(unit="topics", text="So many topics like this one.", default=1, minimum=1, whole=True),
    "average_messages_per_s": Entry(unit="messages/s", text="Of each topic, for storage and cost."),
    "peak_messages_per_s": Entry(unit="messages/s", text="Of each topic, for brokers and network.", above_zero=True),
    "message_bytes": Entry(unit="bytes", text="Average size of a message, before compression.", above_zero=True),
    "retention_days": Entry(unit="days", text="How long records are kept.", above_zero=True),
    "replication_factor": Entry(
        unit="copies", text="The cluster's if not given.", optional=True, minimum=1, maximum=COPIES_MAX, whole=True
    ),
    "compression": Entry(unit="codec", text="none, snappy, lz4, gzip or zstd.", optional=True),
    "compression_ratio": Entry(
        unit=": 1", text="A measured ratio, instead of the codec.", optional=True, minimum=1, maximum=1000
    ),
    "groups": Entry(unit="groups", text="Consumer groups that follow the end.", default=1),
    "reader_lag_s": Entry(unit="s", text="How far behind they usually are.", default=0),
    "replaying_groups": Entry(unit="groups", text="Groups that read old data all the time.", default=0),
    "consumers": Entry(unit="members", text="Members of the largest group.", default=0, whole=True),
    "partitions": Entry(
        unit="partitions", text="If it is fixed already; planned if not given.", optional=True, minimum=1, whole=True
    ),
    "per_partition_mb_s": Entry(unit="MB/s", text="The cluster's if not given.", optional=True, above_zero=True),
}
COST: Final[Mapping[str, Entry]] = {
    "egress_share": Entry(
        unit="share", text="Of the reads, those that leave and are billed.", default=1.0, maximum=1.0
    ),
    "reserved": Entry(unit="true or false", text="Reserved instances.", default=False),
    "people": Entry(unit="true or false", text="Count engineers, support and training.", default=True),
}
TABLES: Final[Mapping[str, Mapping[str, Entry]]] = {"cluster": CLUSTER, "broker": BROKER, "topics": TOPIC, "cost": COST}
NAMES: Final = (*TABLES, "values")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """`count` topics that are alike; rates are those of one of them."""

    name: str
    count: int
    average_messages_per_s: float
    peak_messages_per_s: float
    message_bytes: float
    retention_days: float
    replication_factor: int
    compression_ratio: float
    groups: float
    reader_lag_s: float
    replaying_groups: float
    consumers: int
    per_partition_mb_s: float
    partitions: int | None = None

    @property
    def peak_mb_s(self) -> float:
        """What its producers send, compressed, to one of the topics."""
        return self.peak_messages_per_s * self.message_bytes / self.compression_ratio / MB

    @property
    def fan_out(self) -> float:
        return self.groups + self.replaying_groups


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    name: str
    zones: int
    broker: BrokerSpec
    topics: tuple[TopicSpec, ...]
    rebuild_mb_s: float | None = None
    brokers_now: int | None = None
    egress_share: float = 1.0
    reserved: bool = False
    people: bool = True
    local_days: float = inf
    """With tiered storage: the age from which records are only in object storage."""
    nearest_reads: bool = False
    """Consumers read from a replica in their own zone."""


def read_spec(text: str, catalogue: Catalogue, origin: str = "the spec") -> tuple[ClusterSpec, Catalogue]:
    """The design in a TOML document, and the catalogue with the document's own values. Raises PlanError."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PlanError(f"{origin} is not valid TOML: {error}") from None
    reader = _Reader(text, origin)
    for name, table in document.items():
        if name not in NAMES:
            raise reader.refusal((name,), f"there is no table {name}{_near(name, NAMES)}")
        if name == "topics" and not (isinstance(table, list) and all(isinstance(one, dict) for one in table)):
            raise reader.refusal((name,), "topics are tables of their own: write [[topics]]")
        if name != "topics" and not isinstance(table, dict):
            raise reader.refusal((name,), f"{name} is a table: write [{name}]")
    catalogue = catalogue.with_values(
        dict(leaves(document.get("values", {}))),
        lambda path: f"{reader.place(('values', *path))}: {'.'.join(path)}",
        origin,
    )
    cluster = reader.table(("cluster",), document.get("cluster", {}), CLUSTER)
    broker = reader.table(("broker",), document.get("broker", {}), BROKER)
    cost = reader.table(("cost",), document.get("cost", {}), COST)
    topics = document.get("topics", [])
    if not topics:
        raise PlanError(f"{origin} has no topics: add a table [[topics]] for each of them")
    if len(topics) > TOPICS_MAX:
        raise PlanError(f"{origin} has {len(topics):,} topics, more than {TOPICS_MAX:,}: use count for those alike")
    read = tuple(reader.topic(number, one, cluster, catalogue) for number, one in enumerate(topics))
    _refuse_duplicates(read, reader)
    write = broker["disk_write_mb_s"]
    read_mb_s = broker["disk_read_mb_s"]
    tested = broker["tested_messages_per_s"]
    spec = ClusterSpec(
        name=cluster["name"],
        zones=int(cluster["zones"]),
        broker=BrokerSpec(
            network_mb_s=broker["network_mb_s"],
            disk_write_mb_s=write,
            disk_read_mb_s=write if read_mb_s is None else read_mb_s,
            disk_bytes=broker["disk_gb"] * GB,
            page_cache_bytes=broker["page_cache_gb"] * GB,
            tested_messages_per_s=inf if tested is None else tested,
        ),
        topics=read,
        rebuild_mb_s=broker["rebuild_mb_s"],
        brokers_now=None if broker["count"] is None else int(broker["count"]),
        egress_share=cost["egress_share"],
        reserved=cost["reserved"],
        people=cost["people"],
    )
    _refuse_few_brokers(spec, reader)
    return spec, catalogue


class _Reader:
    """Reads tables and names the line of what it refuses."""

    def __init__(self, text: str, origin: str) -> None:
        self._text = text
        self._origin = origin

    def place(self, path: tuple[str | int, ...]) -> str:
        return f"{self._origin}, line {line_of(self._text, path)}"

    def refusal(self, path: tuple[str | int, ...], reason: str) -> PlanError:
        return PlanError(f"{self.place(path)}: {reason}")

    def table(self, path: tuple[str | int, ...], given: Mapping[str, object], entries: Mapping[str, Entry]) -> Any:
        """The values of one table: those given, and defaults. Entries that are optional and missing are None."""
        where = str(path[0])
        for key in given:
            if key not in entries:
                raise self.refusal((*path, key), f"{where} has no entry {key}{_near(key, entries)}")
        found: dict[str, object] = {}
        for key, entry in entries.items():
            if key in given:
                found[key] = self._checked((*path, key), given[key], entry)
            elif entry.default is None and not entry.optional:
                raise self.refusal(path, f"{where} needs {key} ({entry.unit}): {entry.text}")
            else:
                found[key] = entry.default
        return found

    def topic(self, number: int, given: Mapping[str, object], cluster: Any, catalogue: Catalogue) -> TopicSpec:
        path = ("topics", number)
        one = self.table(path, given, TOPIC)
        if one["peak_messages_per_s"] < one["average_messages_per_s"]:
            raise self.refusal(
                (*path, "peak_messages_per_s"),
                f"the peak of {one['name']} ({one['peak_messages_per_s']:g} messages/s) is below its average "
                f"({one['average_messages_per_s']:g})",
            )
        if one["compression"] is not None and one["compression_ratio"] is not None:
            raise self.refusal((*path, "compression_ratio"), "give either compression or compression_ratio, not both")
        ratio = one["compression_ratio"] or 1.0
        if one["compression"] is not None:
            if one["compression"] not in CODECS:
                near = _near(one["compression"], CODECS)
                raise self.refusal((*path, "compression"), f"there is no codec {one['compression']}{near}")
            ratio = compression_ratio(catalogue, one["compression"])
        return TopicSpec(
            name=one["name"],
            count=int(one["count"]),
            average_messages_per_s=one["average_messages_per_s"],
            peak_messages_per_s=one["peak_messages_per_s"],
            message_bytes=one["message_bytes"],
            retention_days=one["retention_days"],
            replication_factor=int(one["replication_factor"] or cluster["replication_factor"]),
            compression_ratio=ratio,
            groups=one["groups"],
            reader_lag_s=one["reader_lag_s"],
            replaying_groups=one["replaying_groups"],
            consumers=int(one["consumers"]),
            per_partition_mb_s=one["per_partition_mb_s"] or cluster["per_partition_mb_s"],
            partitions=None if one["partitions"] is None else int(one["partitions"]),
        )

    def _checked(self, path: tuple[str | int, ...], value: object, entry: Entry) -> object:
        name = path[-1]
        if entry.unit in ("text", "codec"):
            if not isinstance(value, str) or not value:
                raise self.refusal(path, f"{name} is {value!r}: a text is needed")
            return value
        if entry.unit == "true or false":
            if not isinstance(value, bool):
                raise self.refusal(path, f"{name} is {value!r}: true or false is needed")
            return value
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.refusal(path, f"{name} is {value!r}: a number is needed ({entry.unit})")
        if not isfinite(value) or not entry.minimum <= value <= entry.maximum or (entry.above_zero and value == 0):
            bounds = f"{entry.minimum:g} or more" if entry.maximum == inf else f"{entry.minimum:g} to {entry.maximum:g}"
            needed = "a number above 0" if entry.above_zero else f"a number of {bounds}"
            raise self.refusal(path, f"{name} is {value}: {needed} is needed ({entry.unit})")
        if entry.whole and value != int(value):
            raise self.refusal(path, f"{name} is {value}: a whole number is needed ({entry.unit})")
        return value


def _refuse_duplicates(topics: tuple[TopicSpec, ...], reader: _Reader) -> None:
    seen: dict[str, int] = {}
    for number, topic in enumerate(topics):
        if topic.name in seen:
            first = reader.place(("topics", seen[topic.name], "name"))
            raise reader.refusal(("topics", number, "name"), f"{topic.name} is there already ({first})")
        seen[topic.name] = number


def _refuse_few_brokers(spec: ClusterSpec, reader: _Reader) -> None:
    most = max(spec.topics, key=lambda topic: topic.replication_factor)
    if spec.brokers_now is not None and spec.brokers_now < most.replication_factor:
        raise reader.refusal(
            ("broker", "count"),
            f"{spec.brokers_now} brokers cannot hold {most.replication_factor} copies of {most.name}",
        )


def _near(name: str, known: Mapping[str, object] | tuple[str, ...]) -> str:
    near = get_close_matches(name, list(known), 1)
    return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"
