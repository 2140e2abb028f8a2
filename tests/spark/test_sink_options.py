"""Options of the sink: what is understood, and what is refused with which reason."""

from __future__ import annotations

import pickle

import pytest

from penstock.spark.producing import SinkError
from penstock.spark.sink_options import SinkOptions

SERVERS = {"kafka.bootstrap.servers": "one:9092,two:9092"}


def test_names_are_read_in_any_case_and_properties_without_their_prefix() -> None:
    options = SinkOptions.parse({"Kafka.Bootstrap.Servers": "one:9092", "TOPIC": " orders ", "kafka.acks": "1"})
    assert options == SinkOptions("orders", {"bootstrap.servers": "one:9092", "acks": "1"})
    assert options.bootstrap_servers == "one:9092"


def test_options_travel_to_tasks_and_hide_their_secrets() -> None:
    options = SinkOptions.parse({**SERVERS, "kafka.sasl.password": "hunter2"})
    assert pickle.loads(pickle.dumps(options)) == options
    assert "hunter2" not in repr(options)


def test_what_is_sparks_own_or_the_sources_is_no_mistake() -> None:
    shared = {"checkpointLocation": "here", "includeHeaders": "true", "subscribe": "in", "startingOffsets": "latest"}
    assert SinkOptions.parse({**SERVERS, **shared}).topic is None


def test_java_names_become_librdkafkas() -> None:
    options = SinkOptions.parse(
        {
            **SERVERS,
            "kafka.max.request.size": "10000000",
            "kafka.compression.zstd.level": "3",
            "kafka.partitioner.adaptive.partitioning.enable": "false",
            "kafka.partitioner.class": "org.apache.kafka.clients.producer.internals.DefaultPartitioner",
        }
    )
    assert options.properties == {
        "bootstrap.servers": "one:9092,two:9092",
        "message.max.bytes": "10000000",
        "compression.level": "3",
    }


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, ["'kafka.bootstrap.servers' must be specified", ".option("]),
        ({"kafka.bootstrap.servers": " "}, ["'kafka.bootstrap.servers' must be specified"]),
        ({**SERVERS, "topics": "a"}, ["option 'topics' is not known", "did you mean 'topic'?"]),
        ({**SERVERS, "acks": "all"}, ["option 'acks' is not known", "kafka.<property"]),
        ({**SERVERS, "linger.ms": "5"}, ["option 'linger.ms' is not known", "'kafka.linger.ms'"]),
        ({**SERVERS, "topic": " "}, ["option 'topic' is empty", "column"]),
        ({**SERVERS, "kafka.key.serializer": "x"}, ["'key.serializer' is not supported as keys are serialized with"]),
        ({**SERVERS, "kafka.value.serializer": "x"}, ["'value.serializer' is not supported as values are serialized"]),
        ({**SERVERS, "kafka.interceptor.classes": "a.B"}, ["'interceptor.classes'", "Java code"]),
        ({**SERVERS, "kafka.partitioner.class": "a.B"}, ["'partitioner.class'", "column `partition`"]),
        ({**SERVERS, "kafka.partitioner.ignore.keys": "true"}, ["'kafka.partitioner' = 'random'"]),
        ({**SERVERS, "kafka.transactional.id": "x"}, ["'transactional.id'", "penstock.pipeline.to_topic"]),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason_and_the_fix(given: dict[str, str], words: list[str]) -> None:
    with pytest.raises(SinkError) as caught:
        SinkOptions.parse(given)
    text = str(caught.value)
    assert "\n" not in text
    for word in words:
        assert word in text
