"""Markers and caps: what is understood, what is refused."""

from __future__ import annotations

import pytest

from penstock.client import SettingsError
from penstock.pipeline.caps import SourceCap, fix_for, uncapped
from penstock.pipeline.markers import Marker
from penstock.pipeline.to_topic import to_topic
from penstock.pipeline.topic_errors import MarkerError


def test_a_marker_reads_back() -> None:
    marker = Marker(batch_id=7, records=1000)
    assert marker.encode() == b'{"version":1,"batchId":7,"records":1000}'
    assert Marker.decode(b"q", marker.encode()) == marker


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"", "is not one"),
        (b"\xff", "is not one"),
        (b"[]", "is not one"),
        (b'{"batchId": 1}', "is not one.*marker_topic of its own"),
        (b'{"version":2,"batchId":1,"records":1}', "version 2, and only 1 is known here.*newer Penstock"),
        (b'{"version":1,"batchId":"1","records":1}', "makes no sense"),
        (b'{"version":1,"batchId":-1,"records":1}', "makes no sense"),
    ],
)
def test_what_is_no_marker_is_refused_and_never_taken_for_none(value: bytes, message: str) -> None:
    with pytest.raises(MarkerError, match=message):
        Marker.decode(b"q", value)


def source(name: str, limit: str = "ReadAllAvailable", *, admission: bool = True, **options: str) -> SourceCap:
    return SourceCap(name, f"{name}[…]", limit, admission, options)


@pytest.mark.parametrize(
    "capped",
    [
        source("KafkaMicroBatchStream", "ReadMaxRows"),
        source("KafkaMicroBatchStream", "CompositeReadLimit"),
        source("FileStreamSource", "ReadMaxFiles"),
        source("RateStreamMicroBatchStream", admission=False),
        source("PythonMicroBatchStream", admission=False, subscribe="t", MAXOFFSETSPERTRIGGER="9"),
        source("PythonMicroBatchStream", admission=False, path="x"),
        source("SomeoneElsesStream", admission=False),
    ],
)
def test_sources_with_a_cap_and_those_that_cannot_be_judged_pass(capped: SourceCap) -> None:
    assert uncapped([capped]) is None


@pytest.mark.parametrize(
    ("bare", "option"),
    [
        (source("KafkaMicroBatchStream"), "maxOffsetsPerTrigger"),
        (source("KafkaMicroBatchStream", "ReadMinRows"), "maxOffsetsPerTrigger"),
        (source("FileStreamSource"), "maxFilesPerTrigger"),
        (source("FileStreamSource", maxFilesPerTrigger="1"), "maxFilesPerTrigger"),
        (source("PythonMicroBatchStream", admission=False, subscribe="t"), "maxOffsetsPerTrigger"),
        (source("PythonMicroBatchStreamWithAdmissionControl"), "maxOffsetsPerTrigger"),
    ],
)
def test_a_source_without_a_cap_is_found_among_others_and_told_its_option(bare: SourceCap, option: str) -> None:
    assert uncapped([source("FileStreamSource", "ReadMaxFiles"), bare]) is bare
    assert fix_for(bare) == option


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"transactional.id": "mine"}, "transactional.id: cannot be set here: it is made from the query's id"),
        ({"acks": "1"}, "acks: cannot be set here"),
        ({"enable.idempotence": "false"}, "enable.idempotence: cannot be set here"),
        ({"bootstrap.servers": "elsewhere:9092"}, "first argument"),
        ({"security.protocol": "NONE"}, "security.protocol"),
    ],
)
def test_properties_that_would_break_the_guarantee_are_refused(properties: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        to_topic("localhost:9092", topic="t", properties=properties)


def test_harmless_properties_may_be_repeated() -> None:
    to_topic("localhost:9092", topic="t", properties={"acks": "all", "enable.idempotence": "true"})


def test_markers_are_not_mixed_with_rows() -> None:
    with pytest.raises(SettingsError, match="where the markers are kept"):
        to_topic("localhost:9092", topic="m", marker_topic="m")
    with pytest.raises(SettingsError, match="marker_topic: is empty"):
        to_topic("localhost:9092", topic="t", marker_topic="")
    with pytest.raises(SettingsError, match=r"bootstrap\.servers"):
        to_topic("", topic="t")
