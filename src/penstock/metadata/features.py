"""Feature levels: the record formats and behaviours that the whole cluster has agreed on.

Names and numbers are Kafka's. A node refuses a level that it does not know: see `MetadataDelta`.

- `metadata.version` 25, Kafka's 4.0-IV3: the records of this release, with directories, fields for eligible leaders
  and registration changes.
- `eligible.leader.replicas.version` 1 (KIP-966): replicas that left a too small ISR may lead later.
- `transaction.version` 2 (KIP-890): partition leaders register partitions, and each EndTxn raises the epoch. 1: the
  records of `__transaction_state` are flexible. 0, the level of a cluster made by an older release: neither.
- `kraft.version` 1 (KIP-853): voters with directory ids, in the log. The quorum keeps it in a record of its own.
- `group.version` 1 (KIP-848): the consumer protocol. Every release supports it, so no record states it.

- `penstock.security.version` 1: records of ACLs, SCRAM credentials and client quotas. The name is
  ours: Kafka has these records in every `metadata.version` of 4.x, but nodes of earlier releases of Penstock stop at
  them. The controller raises it with the first such record (`security_level`), so a cluster that uses none of them
  stays readable for the release before.

`kraft.version` and `group.version` are *implied*: they are in force in every cluster, whatever its log says, and no
other level is supported. So a cluster needs no record for them, which nodes of an older release would refuse.

Share groups and streams groups are not features here yet; Kafka expresses that as level 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.metadata.image import VersionRange
from penstock.raft.types import KRAFT_VERSION as KRAFT_VERSION_LEVEL
from penstock.wire.messages import metadata_records as r
from penstock.wire.messages.metadata_records import FeatureLevelRecord

METADATA_VERSION: Final = "metadata.version"
METADATA_VERSION_LEVEL: Final = 25
KRAFT_VERSION: Final = "kraft.version"
ELR_VERSION: Final = "eligible.leader.replicas.version"
ELR_VERSION_LEVEL: Final = 1
GROUP_VERSION: Final = "group.version"
GROUP_VERSION_LEVEL: Final = 1
TRANSACTION_VERSION: Final = "transaction.version"
TRANSACTION_VERSION_LEVEL: Final = 2
SECURITY_VERSION: Final = "penstock.security.version"
SECURITY_VERSION_LEVEL: Final = 1

SECURITY_RECORDS: Final[frozenset[type[r.MetadataRecord]]] = frozenset(
    {
        r.AccessControlEntryRecord,
        r.RemoveAccessControlEntryRecord,
        r.UserScramCredentialRecord,
        r.RemoveUserScramCredentialRecord,
        r.ClientQuotaRecord,
    }
)
"""The records that need level 1 of `penstock.security.version`."""

SUPPORTED_FEATURES: Final = {
    ELR_VERSION: VersionRange(0, ELR_VERSION_LEVEL),
    GROUP_VERSION: VersionRange(GROUP_VERSION_LEVEL, GROUP_VERSION_LEVEL),
    KRAFT_VERSION: VersionRange(KRAFT_VERSION_LEVEL, KRAFT_VERSION_LEVEL),
    METADATA_VERSION: VersionRange(METADATA_VERSION_LEVEL, METADATA_VERSION_LEVEL),
    TRANSACTION_VERSION: VersionRange(0, TRANSACTION_VERSION_LEVEL),
    SECURITY_VERSION: VersionRange(0, SECURITY_VERSION_LEVEL),
}
"""The levels that this release supports, as sent in ApiVersions and broker registrations."""

BOOTSTRAP_FEATURES: Final = {
    METADATA_VERSION: METADATA_VERSION_LEVEL,
    ELR_VERSION: ELR_VERSION_LEVEL,
    TRANSACTION_VERSION: TRANSACTION_VERSION_LEVEL,
}
"""The levels of a new cluster."""

IMPLIED_FEATURES: Final = {GROUP_VERSION: GROUP_VERSION_LEVEL, KRAFT_VERSION: KRAFT_VERSION_LEVEL}
"""The levels in force in every cluster, without a record."""


def finalized_features(stated: Mapping[str, int]) -> dict[str, int]:
    """All levels in force, given those stated by records."""
    return dict(sorted({**IMPLIED_FEATURES, **stated}.items()))


def bootstrap_records() -> list[FeatureLevelRecord]:
    return [FeatureLevelRecord(name=name, feature_level=level) for name, level in BOOTSTRAP_FEATURES.items()]


def bootstrap_values() -> list[bytes]:
    """The first records of a new cluster, as stored in its bootstrap snapshot."""
    return [r.encode_metadata_record(record) for record in bootstrap_records()]
