"""The controller's decisions about ACLs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.acls.filters import AclFilter, checked_filter
from penstock.acls.rules import Acl, acl_id, check_acl
from penstock.metadata.image import MetadataImage
from penstock.metadata.records import acl_record
from penstock.metadata.requests import DONE, AclDeletion, Outcome
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.metadata_records import MetadataRecord, RemoveAccessControlEntryRecord

ACLS_MAX: Final = 100_000
"""ACLs of a cluster. Every node keeps all of them in memory, some 0.5 KB each."""
COMPARISONS_MAX: Final = 200_000
"""ACLs that one request may be compared with, over all its filters: more would hold the controller for too long."""


class AclControl:
    """Decides on one image."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image

    def create(self, acls: Sequence[Acl]) -> tuple[list[MetadataRecord], list[Outcome]]:
        """Creates the valid ones. An ACL that exists already is created once more without a record, as in Kafka."""
        records: dict[bytes, MetadataRecord] = {}
        outcomes: list[Outcome] = []
        for acl in acls:
            try:
                check_acl(acl)
                found_id = acl_id(acl)
                if found_id not in self._image.acls and found_id not in records:
                    if len(self._image.acls) + len(records) >= ACLS_MAX:
                        raise KafkaError(
                            ErrorCode.POLICY_VIOLATION,
                            f"There are {ACLS_MAX} ACLs, the most that a cluster may have. Use prefixed patterns and "
                            "address ranges, or delete ACLs that are no longer needed.",
                        )
                    records[found_id] = acl_record(found_id, acl)
                outcomes.append(DONE)
            except KafkaError as error:
                outcomes.append(Outcome.of(error))
        return list(records.values()), outcomes

    def delete(self, filters: Sequence[AclFilter]) -> tuple[list[MetadataRecord], list[AclDeletion]]:
        """Deletes what any filter matches. The result of each filter lists all that it matched."""
        self._check_work(filters)
        removed: dict[bytes, None] = {}
        results: list[AclDeletion] = []
        for found in filters:
            try:
                matching = self._matching(checked_filter(found))
            except KafkaError as error:
                results.append(AclDeletion(Outcome.of(error)))
                continue
            removed.update(dict.fromkeys(matching))
            results.append(AclDeletion(DONE, tuple(matching.values())))
        return [RemoveAccessControlEntryRecord(id=found_id) for found_id in removed], results

    def _matching(self, found: AclFilter) -> dict[bytes, Acl]:
        exactly = found.exactly
        if exactly is not None:
            found_id = acl_id(exactly)
            return {found_id: exactly} if found_id in self._image.acls else {}
        return {found_id: acl for found_id, acl in self._image.acls.items() if found.matches(acl)}

    def _check_work(self, filters: Sequence[AclFilter]) -> None:
        scans = sum(found.exactly is None for found in filters)
        if scans > 1 and scans * len(self._image.acls) > COMPARISONS_MAX:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"{scans} filters that may match several ACLs are too many for one request: send fewer at a time.",
            )
