"""Raises `penstock.security.version` when the first record that needs it is written.

Nodes of earlier releases stop at records of ACLs, credentials and quotas. So such a record is written only if every
registered broker has said that it can read them, and every voter is one of these brokers. In the same batch, before it,
goes the record that raises the level. From then on a node of an earlier release is refused with a reason, when it
registers or when it reads the log.

Voters without the broker role register nowhere, so nobody knows their release. Their operator raises the level, once
all of them run a release that supports it.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.metadata.features import SECURITY_RECORDS, SECURITY_VERSION, SECURITY_VERSION_LEVEL
from penstock.metadata.image import MetadataImage
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.metadata_records import FeatureLevelRecord, MetadataRecord


def with_security_level(
    image: MetadataImage, records: list[MetadataRecord], voter_ids: Sequence[int]
) -> list[MetadataRecord]:
    """The records, preceded by the one that raises the level if they are the first that need it.

    Raises KafkaError(UNSUPPORTED_VERSION) if a node may be unable to read them.
    """
    if image.features.get(SECURITY_VERSION, 0) >= SECURITY_VERSION_LEVEL:
        return records
    if not any(type(record) in SECURITY_RECORDS for record in records):
        return records
    problem = _problem(image, voter_ids)
    if problem is not None:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"ACLs, SCRAM credentials, quotas and tokens need {SECURITY_VERSION}={SECURITY_VERSION_LEVEL}: {problem}",
        )
    return [level_record(), *records]


def level_record() -> FeatureLevelRecord:
    return FeatureLevelRecord(name=SECURITY_VERSION, feature_level=SECURITY_VERSION_LEVEL)


def _problem(image: MetadataImage, voter_ids: Sequence[int]) -> str | None:
    old = [
        broker.id
        for broker in image.brokers.values()
        if (levels := broker.features.get(SECURITY_VERSION)) is None or levels.max < SECURITY_VERSION_LEVEL
    ]
    if old:
        return (
            f"brokers {_listed(old)} run a release that cannot read them. Upgrade these brokers, or unregister those "
            "that are gone for good"
        )
    unknown = [voter for voter in voter_ids if voter not in image.brokers]
    if unknown:
        return (
            f"the release of controllers {_listed(unknown)} is not known. Once all controllers run this release, raise "
            f"the level: kafka-features.sh upgrade --feature {SECURITY_VERSION}={SECURITY_VERSION_LEVEL}"
        )
    return None


def _listed(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids))
