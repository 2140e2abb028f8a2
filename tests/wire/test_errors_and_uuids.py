"""Error codes and uuids, as Kafka has them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode

from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.uuids import (
    DIRECTORY_LOST,
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
    METADATA_TOPIC_ID,
    ZERO_UUID,
    format_uuid,
    is_reserved,
    parse_uuid,
)


def test_every_code_of_kafkas_is_there_with_its_name_and_whether_to_retry() -> None:
    theirs = {code.name.upper(): (int(code), code.retriable) for code in KioErrorCode}
    assert {code.name: (code.value, code.retriable) for code in ErrorCode} == theirs


def test_every_code_but_none_has_a_message_of_one_sentence() -> None:
    for code in ErrorCode:
        assert (code.message == "") == (code is ErrorCode.NONE)
        assert code is ErrorCode.NONE or code.message.endswith(".")


def test_an_error_carries_its_code_and_says_why() -> None:
    assert str(KafkaError(3)) == "UNKNOWN_TOPIC_OR_PARTITION: This broker has no such topic or partition."
    error = KafkaError(ErrorCode.INVALID_CONFIG, "retention.ms: 'x' is no number")
    assert (error.code, error.message) == (ErrorCode.INVALID_CONFIG, "retention.ms: 'x' is no number")


@given(st.binary(min_size=16, max_size=16))
def test_uuids_round_trip(uuid: bytes) -> None:
    text = format_uuid(uuid)
    assert len(text) == 22
    assert parse_uuid(text) == uuid


def test_uuids_look_as_in_kafka() -> None:
    assert format_uuid(ZERO_UUID) == "A" * 22
    assert format_uuid(METADATA_TOPIC_ID) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert format_uuid(bytes.fromhex("fb" + "ff" * 15)) == "-_" + "_" * 19 + "w"


@pytest.mark.parametrize("text", ["", "A" * 21, "A" * 23, "A" * 21 + "B", "+" * 22, "A" * 20 + "==", "é" * 22])
def test_what_is_no_uuid_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a UUID"):
        parse_uuid(text)


def test_reserved_uuids_are_the_first_hundred() -> None:
    assert is_reserved(ZERO_UUID)
    assert is_reserved(bytes(15) + bytes((99,)))
    assert not is_reserved(bytes(15) + bytes((100,)))


def test_directory_ids_with_a_meaning_have_kafkas_numbers() -> None:
    ids = (DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED, DIRECTORY_LOST)
    assert [int.from_bytes(uuid, "big") for uuid in ids] == [0, 1, 2]
