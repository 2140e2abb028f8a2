"""The table of what is served."""

from __future__ import annotations

import pytest

from penstock.wire.apis import FRAME_BYTES_MAX, SERVED, ApiKey, ServedApi, markdown_table
from penstock.wire.codec import Limits, decode_whole, to_bytes
from penstock.wire.messages.index import MESSAGES
from penstock.wire.schema import versions_of

ROWS = list(SERVED.values())


@pytest.mark.parametrize("api", ROWS, ids=lambda api: api.name)
def test_every_served_version_has_messages(api: ServedApi) -> None:
    for cls in (api.request, api.response):
        for version in api.versions:
            assert version in versions_of(cls)
            assert decode_whole(cls, version, to_bytes(cls(), version)) == cls()


@pytest.mark.parametrize("api", ROWS, ids=lambda api: api.name)
def test_every_row_is_complete(api: ServedApi) -> None:
    assert 0 <= api.advertised_min <= api.min_version <= api.max_version
    assert 0 < api.max_frame_bytes <= FRAME_BYTES_MAX
    assert api.limits == Limits(max_elements=api.max_elements, max_tagged_fields=1_000)
    assert api.behaviour
    assert not api.behaviour.endswith(".")


def test_oldest_versions_are_those_kafka_kept() -> None:
    kept = {key: MESSAGES[key].first_version for key in SERVED}
    assert {key: api.min_version for key, api in SERVED.items()} == kept


def test_newest_versions_are_the_newest_stable_ones() -> None:
    newest = {key: MESSAGES[key].last_version for key in SERVED}
    # Kafka marks only this one as not stable yet (KIP-939).
    newest[ApiKey.INIT_PRODUCER_ID] -= 1
    assert {key: api.max_version for key, api in SERVED.items()} == newest


def test_produce_is_advertised_from_zero_so_that_old_librdkafka_compresses() -> None:
    assert (SERVED[ApiKey.PRODUCE].advertised_min, SERVED[ApiKey.PRODUCE].min_version) == (0, 3)
    assert [api.key for api in ROWS if api.advertised_min != api.min_version] == [ApiKey.PRODUCE]


def test_the_documentation_table_has_a_row_per_api() -> None:
    lines = markdown_table().splitlines()
    assert len(lines) == 2 + len(SERVED)
    assert "| Produce | 0 | 3–13 (advertised from 0) | 9 |" in lines[2]
    assert all(line.count("|") == 6 for line in lines)


def test_names_and_keys_agree_with_the_messages() -> None:
    for key, messages in MESSAGES.items():
        assert ApiKey(key).name.lower() == messages.module
