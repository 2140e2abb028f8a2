"""Options are read as Spark's Kafka source reads them, and refused for its reasons."""

from __future__ import annotations

import pickle

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'penstock-streaming[spark]'")

from penstock.client import EARLIEST, LATEST, TopicPartition
from penstock.spark.errors import OptionError
from penstock.spark.options import (
    Client,
    Offsets,
    Selection,
    SourceOptions,
    Strategy,
    Times,
    batch_options,
    check_options,
    stream_options,
)

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
ORDERS = SERVERS | {"subscribe": "orders"}


def test_defaults_are_those_of_spark() -> None:
    batch, stream = batch_options(ORDERS), stream_options(ORDERS)

    assert batch.starting == Offsets(everywhere=EARLIEST)
    assert batch.ending == Offsets(everywhere=LATEST)
    assert stream.starting == Offsets(everywhere=LATEST)
    assert batch.fail_on_data_loss
    assert not batch.include_headers
    assert not batch.read_committed
    assert (batch.fetch_offset_attempts, batch.fetch_offset_interval_ms) == (3, 1000)
    assert stream.trigger_delay_max_ms == 15 * 60 * 1000
    assert batch.client is Client.AUTO


def test_every_option_of_spark_is_read() -> None:
    options = check_options(
        {
            "kafka.bootstrap.servers": "a:1,b:2",
            "subscribePattern": " orders-.* ",
            "startingTimestamp": " 1700000000000 ",
            "startingOffsetsByTimestampStrategy": "LATEST",
            "failOnDataLoss": "False",
            "includeHeaders": "TRUE",
            "maxOffsetsPerTrigger": "1000",
            "minOffsetsPerTrigger": "10",
            "maxTriggerDelay": "2h",
            "minPartitions": "8",
            "maxRecordsPerPartition": "500",
            "groupIdPrefix": "billing",
            "kafkaConsumer.pollTimeoutMs": "5000",
            "fetchOffset.numRetries": "7",
            "fetchOffset.retryIntervalMs": "0",
            "kafka.isolation.level": "read_committed",
            "kafka.security.protocol": "SASL_SSL",
            "penstock.client": "confluent",
            "penstock.pushFilters": "true",
        }
    )

    assert options == SourceOptions(
        selection=Selection(pattern="orders-.*"),
        starting=Times(everywhere=1700000000000),
        ending=Offsets(everywhere=LATEST),
        strategy=Strategy.LATEST,
        fail_on_data_loss=False,
        include_headers=True,
        offsets_per_trigger_max=1000,
        offsets_per_trigger_min=10,
        trigger_delay_max_ms=2 * 3600 * 1000,
        partitions_min=8,
        records_per_partition_max=500,
        group_id="billing",
        poll_timeout_ms=5000,
        fetch_offset_attempts=7,
        fetch_offset_interval_ms=0,
        client=Client.CONFLUENT,
        push_filters=True,
        properties={
            "bootstrap.servers": "a:1,b:2",
            "isolation.level": "read_committed",
            "security.protocol": "SASL_SSL",
        },
    )
    assert options.read_committed


def test_a_group_id_wins_over_its_prefix() -> None:
    assert check_options(ORDERS | {"groupIdPrefix": "a", "kafka.group.id": "b"}).group_id == "b"


def test_names_are_read_in_any_case() -> None:
    options = check_options(SERVERS | {"SUBSCRIBE": "orders", "startingoffsets": "earliest"})

    assert options.selection.topics == ("orders",)
    assert options.starting == Offsets(everywhere=EARLIEST)


@pytest.mark.parametrize(
    ("given", "selection"),
    [
        ({"subscribe": " a, b ,,a"}, Selection(topics=("a", "b"))),
        ({"subscribePattern": "a.*"}, Selection(pattern="a.*")),
        (
            {"assign": '{"a":[1,0],"b":[2]}'},
            Selection(assigned=(TopicPartition("a", 1), TopicPartition("a", 0), TopicPartition("b", 2))),
        ),
    ],
)
def test_partitions_are_selected_in_three_ways(given: dict[str, str], selection: Selection) -> None:
    assert check_options(SERVERS | given).selection == selection


def test_the_first_of_timestamp_timestamps_and_offsets_wins() -> None:
    offsets = {"startingOffsets": '{"orders":{"0":23,"1":-1,"2":-2}}'}
    timestamps = {"startingOffsetsByTimestamp": '{"orders":{"0":1000}}'}
    timestamp = {"startingTimestamp": "5"}

    assert stream_options(ORDERS | offsets).starting.places == {
        TopicPartition("orders", 0): 23,
        TopicPartition("orders", 1): LATEST,
        TopicPartition("orders", 2): EARLIEST,
    }
    assert stream_options(ORDERS | offsets | timestamps).starting == Times(places={TopicPartition("orders", 0): 1000})
    assert stream_options(ORDERS | offsets | timestamps | timestamp).starting == Times(everywhere=5)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (SERVERS, "One of the following options must be specified for Kafka source"),
        (ORDERS | {"assign": '{"a":[0]}'}, "Only one of the following options can be specified for Kafka source"),
        (SERVERS | {"subscribe": " , "}, "No topics to subscribe to"),
        (SERVERS | {"subscribePattern": " "}, "Pattern to subscribe is empty"),
        (SERVERS | {"subscribePattern": "a("}, r"cannot be read as a regular expression"),
        (SERVERS | {"assign": "orders"}, "No topicpartitions to assign"),
        (SERVERS | {"assign": '{"a":["x"]}'}, 'Expected e.g. {"topicA":[0,1],"topicB":[0,1]}'),
        ({"subscribe": "orders"}, "Option 'kafka.bootstrap.servers' must be specified"),
        (ORDERS | {"kafka.auto.offset.reset": "latest"}, "Kafka option 'auto.offset.reset' is not supported. Instead"),
        (ORDERS | {"kafka.key.deserializer": "x"}, "Kafka option 'key.deserializer' is not supported as keys are"),
        (ORDERS | {"kafka.value.deserializer": "x"}, "Kafka option 'value.deserializer' is not supported as values"),
        (ORDERS | {"kafka.enable.auto.commit": "true"}, "Kafka option 'enable.auto.commit' is not supported"),
        (ORDERS | {"kafka.interceptor.classes": "x"}, "Kafka option 'interceptor.classes' is not supported"),
        (ORDERS | {"minPartitions": "0"}, "minPartitions must be positive"),
        (ORDERS | {"maxRecordsPerPartition": "0"}, "maxRecordsPerPartition must be positive"),
        (ORDERS | {"maxOffsetsPerTrigger": "ten"}, "maxOffsetsPerTrigger: 'ten' is not a whole number"),
        (
            ORDERS | {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
            "The value of minOffsetPerTrigger(9) is higher than the maxOffsetsPerTrigger(8)",
        ),
        (ORDERS | {"startingTimestamp": "now"}, "Expected a single long value, got now"),
        (ORDERS | {"startingTimestamp": "-1"}, "-1 is no starting timestamp"),
        (ORDERS | {"startingTimestamp": "1_000"}, "Expected a single long value, got 1_000"),
        (ORDERS | {"startingOffsetsByTimestamp": '{"orders":{"0":-2}}'}, "-2 is no starting timestamp"),
        (ORDERS | {"partition.metadata.cache.ttl.ms": "0"}, "must be a positive number of milliseconds, or -1 to"),
        (ORDERS | {"partition.metadata.cache.ttl.ms": "-2"}, "must be a positive number of milliseconds, or -1 to"),
        (ORDERS | {"maxOffsetsPerTrigger": "1_000"}, "maxOffsetsPerTrigger: '1_000' is not a whole number"),
        (ORDERS | {"startingOffsets": "newest"}, 'Expected e.g. {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'),
        (ORDERS | {"startingOffsets": '{"orders":{"0":-3}}'}, "-3 for orders-0 is no offset"),
        (ORDERS | {"startingOffsetsByTimestamp": "5"}, 'Expected e.g. {"topicA": {"0": 123456789'),
        (ORDERS | {"startingOffsetsByTimestampStrategy": "x"}, "'x' is not one of error, latest"),
        (ORDERS | {"failOnDataLoss": "no"}, "failOnDataLoss: 'no' is neither true nor false"),
        (ORDERS | {"maxTriggerDelay": "soon"}, "maxTriggerDelay: 'soon' is no time"),
        (ORDERS | {"startingOffset": "earliest"}, "unknown option 'startingoffset' for the penstock source: did you "),
        (SERVERS | {"topic": "orders"}, "unknown option 'topic' for the penstock source: did you mean subscribe?"),
        ({"bootstrap.servers": "a:1", "subscribe": "a"}, "did you mean kafka.bootstrap.servers?"),
        (ORDERS | {"zzz": "1"}, "unknown option 'zzz' for the penstock source: the options are assign,"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(given: dict[str, str], reason: str) -> None:
    for read in (check_options, batch_options, stream_options):
        with pytest.raises(OptionError) as refused:
            read(given)
        assert reason in str(refused.value)


@pytest.mark.parametrize("name", ["endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"])
def test_streams_have_no_end(name: str) -> None:
    with pytest.raises(OptionError, match="not valid in streaming queries"):
        stream_options(ORDERS | {name: '{"orders":{"0":5}}' if name != "endingTimestamp" else "5"})


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"startingOffsets": "latest"}, "starting offset can't be latest for batch queries on Kafka"),
        ({"startingOffsets": '{"orders":{"0":-1}}'}, "startingOffsets for orders-0 can't be latest"),
        ({"endingOffsets": "earliest"}, "ending offset can't be earliest for batch queries on Kafka"),
        ({"endingOffsets": '{"orders":{"1":-2}}'}, "ending offset for orders-1 can't be earliest"),
        (
            {"startingOffsets": '{"orders":{"0":9}}', "endingOffsets": '{"orders":{"0":8}}'},
            "The specified start offset 9 is greater than the end offset 8 for topic orders partition 0",
        ),
        (
            {"startingOffsets": '{"orders":{"0":9}}', "endingOffsets": '{"orders":{"1":8}}'},
            "name different partitions, these only one of them: orders-0, orders-1",
        ),
        (
            {
                "startingOffsetsByTimestamp": '{"orders":{"0":9}}',
                "endingOffsetsByTimestamp": '{"orders":{"0":8}}',
            },
            "The specified start timestamp 9 is greater than the end timestamp 8 for topic orders partition 0",
        ),
        (
            {"startingTimestamp": "9", "endingTimestamp": "8"},
            "The specified start timestamp 9 is greater than the end timestamp 8",
        ),
        (
            {"startingTimestamp": "9", "endingOffsetsByTimestamp": '{"orders":{"0":9,"1":8}}'},
            "The specified start timestamp 9 is greater than the end timestamp 8 for topic orders partition 1",
        ),
        (
            {"startingOffsetsByTimestamp": '{"orders":{"1":9}}', "endingTimestamp": "8"},
            "The specified start timestamp 9 is greater than the end timestamp 8 for topic orders partition 1",
        ),
        ({"endingTimestamp": "-1"}, "-1 is no ending timestamp"),
    ],
)
def test_batches_need_a_range(given: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionError) as refused:
        batch_options(ORDERS | given)
    assert reason in str(refused.value)


def test_a_time_to_keep_metadata_is_taken_and_has_no_effect() -> None:
    for text in ("1", "-1", "60000"):
        assert check_options(ORDERS | {"partition.metadata.cache.ttl.ms": text}) == check_options(ORDERS)


def test_limits_of_streams_say_nothing_to_batches() -> None:
    assert batch_options(ORDERS | {"maxOffsetsPerTrigger": "5", "maxTriggerDelay": "1s"}).offsets_per_trigger_max == 5


@pytest.mark.parametrize(
    ("text", "expected_ms"), [("15m", 900_000), ("2min", 120_000), ("500", 500), ("3s", 3000), ("1d", 86_400_000)]
)
def test_times_are_written_as_spark_writes_them(text: str, expected_ms: int) -> None:
    assert stream_options(ORDERS | {"maxTriggerDelay": text}).trigger_delay_max_ms == expected_ms


def test_options_travel_to_tasks_and_keep_secrets_to_themselves() -> None:
    options = check_options(ORDERS | {"kafka.sasl.jaas.config": "… password=hunter2;"})

    assert pickle.loads(pickle.dumps(options)) == options
    assert "hunter2" not in repr(options)
