"""The options of `df.write` and `df.writeStream` `.format("penstock")`: those of Spark's Kafka sink.

`kafka.*` are the producer's properties, under Java's names or librdkafka's; `topic` overrides a column of that name. An
option that is not known is refused, because a misspelt one would otherwise be silently without effect.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from penstock.spark.producing import SinkError

KAFKA_PREFIX: Final = "kafka."
BOOTSTRAP: Final = "bootstrap.servers"

KNOWN: Final = ("topic", "kafka.bootstrap.servers")
# Spark hands its own options on to a sink, and jobs often share one set of options between their source and their sink.
NOT_OURS: Final = frozenset(
    {
        "path", "checkpointlocation", "queryname", "outputmode", "trigger", "includeheaders", "groupidprefix",
        "subscribe", "subscribepattern", "assign", "startingoffsets", "endingoffsets", "startingtimestamp",
        "endingtimestamp", "startingoffsetsbytimestamp", "endingoffsetsbytimestamp",
        "startingoffsetsbytimestampstrategy", "maxoffsetspertrigger", "minoffsetspertrigger", "maxtriggerdelay",
        "minpartitions", "maxrecordsperpartition", "failondataloss", "kafkaconsumer.polltimeoutms",
        "fetchoffset.numretries", "fetchoffset.retryintervalms",
    }
)  # fmt: skip

_JAVA_CODE: Final[Mapping[str, str]] = {
    "interceptor.classes": "change the rows before they are written",
    "metric.reporters": "Spark's own metrics and the broker's tell what is written",
    "sasl.client.callback.handler.class": "give the credentials with sasl.jaas.config",
}
_JAVA_PARTITIONERS: Final = frozenset(
    {
        "",
        "org.apache.kafka.clients.producer.internals.DefaultPartitioner",
        "org.apache.kafka.clients.producer.UniformStickyPartitioner",
    }
)

_RENAMED: Final[Mapping[str, str]] = {
    "max.request.size": "message.max.bytes",
    "compression.gzip.level": "compression.level",
    "compression.lz4.level": "compression.level",
    "compression.zstd.level": "compression.level",
}
_WITHOUT_EFFECT: Final = frozenset(
    {
        "metadata.max.idle.ms", "partitioner.adaptive.partitioning.enable", "partitioner.availability.timeout.ms",
        "metadata.recovery.strategy", "metadata.recovery.rebootstrap.trigger.ms", "security.providers",
    }
)  # fmt: skip
"""They steer Java's own machinery, or choose among ways to do what librdkafka does in one way."""


@dataclass(frozen=True)
class SinkOptions:
    """What a write was told. Frozen and picklable, and shy about passwords."""

    topic: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """From Spark's options (their names in any case); SinkError names the one that is wrong, and the fix."""
        topic: str | None = None
        properties: dict[str, str] = {}
        for given, value in options.items():
            name = given.lower()
            if name == "topic":
                topic = value.strip()
                if not topic:
                    raise SinkError("option 'topic' is empty: name a topic, or leave it out and have a `topic` column")
            elif name.startswith(KAFKA_PREFIX):
                properties[name.removeprefix(KAFKA_PREFIX)] = value
            elif name not in NOT_OURS:
                raise SinkError(_unknown(given))
        return cls(topic, producer_names(properties))

    @property
    def bootstrap_servers(self) -> str:
        return self.properties[BOOTSTRAP]


def producer_names(properties: Mapping[str, str]) -> dict[str, str]:
    """A producer's properties without Java's own, renamed where librdkafka has another word. SinkError: cannot be."""
    if not properties.get(BOOTSTRAP, "").strip():
        raise SinkError(
            "Option 'kafka.bootstrap.servers' must be specified for configuring Kafka producer: "
            "say .option('kafka.bootstrap.servers', 'host:9092')"
        )
    named: dict[str, str] = {}
    for name, value in properties.items():
        _refuse(name, value)
        if name not in _WITHOUT_EFFECT:
            named[_RENAMED.get(name, name)] = value
    named.pop("partitioner.class", None)
    return named


def _refuse(name: str, value: str) -> None:
    if name in ("key.serializer", "value.serializer"):
        what = name.partition(".")[0]
        raise SinkError(
            f"Kafka option '{name}' is not supported as {what}s are serialized with ByteArraySerializer: leave it out, "
            f"and make the column `{what}` a string or binary"
        )
    if name in _JAVA_CODE and value.strip():
        fix = _JAVA_CODE[name]
        raise SinkError(f"Kafka option '{name}' names Java code, which cannot run here: leave it out, {fix}")
    if name == "partitioner.class" and value.strip() not in _JAVA_PARTITIONERS:
        raise SinkError(
            "Kafka option 'partitioner.class' names Java code, which cannot run here: write a column `partition`, or "
            "choose one of librdkafka's with 'kafka.partitioner' (murmur2_random places keys as Java's default does)"
        )
    if name == "partitioner.ignore.keys" and value.strip().lower() == "true":
        raise SinkError("Kafka option 'partitioner.ignore.keys' is Java's own: say 'kafka.partitioner' = 'random'")
    if name == "transactional.id":
        raise SinkError(
            "Kafka option 'transactional.id' is not for this sink, whose tasks write side by side (at least once): "
            "for exactly once, write with foreachBatch(penstock.pipeline.to_topic(...))"
        )


def _unknown(given: str) -> str:
    fixes = ["topic", "kafka.<property of the producer>"]
    close = difflib.get_close_matches(given.lower(), KNOWN, n=1)
    hint = f"did you mean '{close[0]}'?" if close else f"the sink's are {' and '.join(fixes)}"
    # The producer's own names, without the prefix that Spark wants before them.
    if not close and "." in given:
        hint = f"a property of the producer is written 'kafka.{given}'"
    return f"option '{given}' is not known to the sink: {hint}"
