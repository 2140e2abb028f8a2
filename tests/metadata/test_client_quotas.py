"""Client quotas in the metadata: what may be set, and that log and snapshot keep it."""

from __future__ import annotations

import pytest

from penstock.metadata import (
    EMPTY_IMAGE,
    MetadataDelta,
    MetadataImage,
    QuotaAlteration,
    difference,
    image_from_snapshot,
    snapshot_values,
)
from penstock.metadata.quota_control import QuotaControl
from penstock.raft.types import OffsetAndEpoch
from penstock.wire.errors import ErrorCode

Parts = tuple[tuple[str, str | None], ...]
ANN: Parts = (("user", "ann"),)
BOTH: Parts = (("user", "ann"), ("client-id", None))


def altered(image: MetadataImage, *alterations: QuotaAlteration) -> MetadataImage:
    records, results = QuotaControl(image).alter(alterations)
    assert not [result.outcome for result in results if result.outcome.failed]
    return MetadataDelta(image).replay_all(records).apply(image.offset + len(records), 1)


def quotas_of(image: MetadataImage) -> dict[Parts, dict[str, float]]:
    return {quota.entity: dict(quota.values) for quota in image.quotas.values()}


def refusal(parts: Parts, *values: tuple[str, float | None]) -> str:
    records, (result,) = QuotaControl(EMPTY_IMAGE).alter([QuotaAlteration(parts, values)])
    assert records == []
    assert result.outcome.error == ErrorCode.INVALID_REQUEST
    return result.outcome.message or ""


def test_quotas_are_set_changed_and_removed_one_by_one() -> None:
    image = altered(
        EMPTY_IMAGE,
        QuotaAlteration(ANN, (("producer_byte_rate", 5.0), ("request_percentage", 0.5))),
        QuotaAlteration(BOTH, (("consumer_byte_rate", 7.0),)),
    )
    kept = (("client-id", None), ("user", "ann"))
    assert quotas_of(image) == {
        ANN: {"producer_byte_rate": 5.0, "request_percentage": 0.5},
        kept: {"consumer_byte_rate": 7.0},
    }
    after = altered(image, QuotaAlteration(ANN, (("producer_byte_rate", None), ("request_percentage", 2.0))))
    assert quotas_of(after)[ANN] == {"request_percentage": 2.0}
    last = altered(after, QuotaAlteration(ANN, (("request_percentage", None),)))
    assert quotas_of(last) == {kept: {"consumer_byte_rate": 7.0}}, "an entity without quotas is gone"
    assert quotas_of(image)[ANN]["producer_byte_rate"] == 5.0, "images do not change"


def test_what_is_so_already_writes_nothing() -> None:
    image = altered(EMPTY_IMAGE, QuotaAlteration(ANN, (("producer_byte_rate", 5.0),)))
    same = QuotaAlteration(ANN, (("producer_byte_rate", 5.0), ("consumer_byte_rate", None)))
    assert QuotaControl(image).alter([same])[0] == []


def test_a_snapshot_keeps_quotas_and_a_difference_names_the_changed_ones() -> None:
    image = altered(
        EMPTY_IMAGE,
        QuotaAlteration(BOTH, (("controller_mutation_rate", 1.5),)),
        QuotaAlteration((("ip", None),), (("connection_creation_rate", 9.0),)),
    )
    loaded = image_from_snapshot(OffsetAndEpoch(image.offset + 1, 1), snapshot_values(image))
    assert quotas_of(loaded) == quotas_of(image)
    assert difference(image, loaded).quotas_changed == []
    assert sorted(difference(EMPTY_IMAGE, loaded).quotas_changed) == sorted(quotas_of(image))
    assert sorted(difference(loaded, EMPTY_IMAGE).quotas_changed) == sorted(quotas_of(image))


@pytest.mark.parametrize(
    ("parts", "values", "reason"),
    [
        ((), (("producer_byte_rate", 1.0),), "empty client quota entity"),
        ((("group", "g"),), (("producer_byte_rate", 1.0),), "Unhandled client quota entity type: group"),
        ((("user", ""),), (("producer_byte_rate", 1.0),), "Empty user not supported"),
        ((("user", "a"), ("user", "b")), (("producer_byte_rate", 1.0),), "duplicate entity entry user"),
        ((("user", "a"), ("ip", "10.0.0.1")), (("connection_creation_rate", 1.0),), "not be combined"),
        ((("ip", "example.org"),), (("connection_creation_rate", 1.0),), "not a valid IP address"),
        ((("ip", "0:0::1"),), (("connection_creation_rate", 1.0),), "use ::1"),
        ((("ip", "10.0.0.1"),), (("producer_byte_rate", 1.0),), "Invalid configuration key producer_byte_rate"),
        (ANN, (("connection_creation_rate", 1.0),), "Invalid configuration key"),
        (ANN, (("producer_byte_rate", 0.0),), "must be greater than 0"),
        (ANN, (("request_percentage", float("nan")),), "must be greater than 0"),
        (ANN, (("producer_byte_rate", 1.5),), "cannot be a fractional value"),
        (ANN, (("consumer_byte_rate", 1e30),), "too large for a LONG"),
        ((("ip", None),), (("connection_creation_rate", 1e10),), "too large for an INT"),
        (ANN, (("producer_byte_rate", 1.0), ("producer_byte_rate", 2.0)), "Duplicate quota key"),
    ],
)
def test_kafkas_rules_for_entities_and_values(
    parts: Parts, values: tuple[tuple[str, float | None], ...], reason: str
) -> None:
    assert reason in refusal(parts, *values)


def test_an_entity_named_twice_is_altered_once() -> None:
    one = QuotaAlteration(ANN, (("producer_byte_rate", 1.0),))
    two = QuotaAlteration(ANN, (("producer_byte_rate", 2.0),))
    records, results = QuotaControl(EMPTY_IMAGE).alter([one, two])
    assert (len(records), [result.outcome.failed for result in results]) == (1, [False, True])
