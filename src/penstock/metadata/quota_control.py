"""The controller's decisions about client quotas (KIP-546)."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.metadata.image import MetadataImage
from penstock.metadata.quotas import Entity, check_entity, check_quota, entity_key
from penstock.metadata.records import quota_record
from penstock.metadata.requests import DONE, Outcome, QuotaAlteration, QuotaResult
from penstock.metadata.topic_control import check_record_total
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.metadata_records import MetadataRecord


class QuotaControl:
    """Decides on one image. The quotas of an entity are all changed or none; entities are independent."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image

    def alter(self, alterations: Sequence[QuotaAlteration]) -> tuple[list[MetadataRecord], list[QuotaResult]]:
        records: list[MetadataRecord] = []
        results: list[QuotaResult] = []
        seen: dict[Entity, None] = {}
        for alteration in alterations:
            try:
                entity = check_entity(alteration.parts)
                if entity in seen:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, f"Ignoring duplicate entity {_named(entity)}")
                seen[entity] = None
                records += self._changes(entity, alteration.values)
            except KafkaError as error:
                results.append(QuotaResult(alteration.parts, Outcome.of(error)))
            else:
                results.append(QuotaResult(alteration.parts, DONE))
        check_record_total(records)
        return records, results

    def _changes(self, entity: Entity, values: Sequence[tuple[str, float | None]]) -> list[MetadataRecord]:
        known = self._image.quotas.get(entity_key(entity))
        before = known.values if known is not None else {}
        records: list[MetadataRecord] = []
        seen: dict[str, None] = {}
        for key, value in values:
            if key in seen:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"Duplicate quota key {key} not updating quota for this entity {_named(entity)}",
                )
            seen[key] = None
            if value is not None:
                check_quota(entity, key, value)
            if before.get(key) != value:
                records.append(quota_record(entity, key, value))
        return records


def _named(entity: Entity) -> str:
    return ", ".join(f"{kind}={'<default>' if name is None else name}" for kind, name in entity)
