"""Client quotas set, described and removed, in every version."""

from __future__ import annotations

from collections.abc import Mapping

from broker.session import Session
from penstock.wire.apis import ApiKey
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from penstock.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest

EXACT, DEFAULT, SPECIFIED = 0, 1, 2


def entry(entity: Mapping[str, str | None], **values: float | None) -> AlterClientQuotasRequestEntryData:
    """Set these quotas of the entity; None removes one."""
    return AlterClientQuotasRequestEntryData(
        entity=[
            AlterClientQuotasRequestEntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()
        ],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
    )


async def set_quota(s: Session, entity: Mapping[str, str | None], **values: float | None) -> None:
    answer = await s.call(AlterClientQuotasRequest(entries=[entry(entity, **values)]))
    assert [result.error_code for result in answer.entries] == [0], answer.entries


async def described_quotas(s: Session, version: int = 1) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
    answer = await s.call(DescribeClientQuotasRequest(), version)
    assert answer.error_code == 0
    return {
        tuple(sorted((part.entity_type, part.entity_name) for part in found.entity)): {
            value.key: value.value for value in found.values
        }
        for found in answer.entries
    }


async def describe_client_quotas(s: Session, version: int, topic_id: bytes) -> None:
    def by(*components: tuple[str, int]) -> DescribeClientQuotasRequest:
        return DescribeClientQuotasRequest(
            components=[ComponentData(entity_type=kind, match_type=match, match=None) for kind, match in components]
        )

    await set_quota(s, {"user": "ann"}, producer_byte_rate=1.0)
    await set_quota(s, {"user": None, "client-id": "c"}, producer_byte_rate=2.0)
    await set_quota(s, {"ip": "10.0.0.1"}, connection_creation_rate=3.0)
    for asked, strict, found in (
        (by(), False, {1.0, 2.0, 3.0}),
        (by(("user", SPECIFIED)), False, {1.0, 2.0}),
        (by(("user", SPECIFIED)), True, {1.0}),
        (by(("user", DEFAULT), ("client-id", SPECIFIED)), True, {2.0}),
        (by(("ip", SPECIFIED)), True, {3.0}),
        (by(("ip", DEFAULT)), True, set()),
    ):
        asked.strict = strict
        answer = await s.call(asked, version)
        assert (answer.error_code, answer.error_message) == (0, "")
        assert {value.value for one in answer.entries for value in one.values} == found
    named = [ComponentData(entity_type="user", match_type=EXACT, match="ann")]
    answer = await s.call(DescribeClientQuotasRequest(components=named), version)
    assert [one.entity[0].entity_name for one in answer.entries] == ["ann"]
    for odd, code in (
        (by(("", 2)), ErrorCode.INVALID_REQUEST),
        (by(("group", 2)), ErrorCode.UNSUPPORTED_VERSION),
        (by(("user", 9)), ErrorCode.INVALID_REQUEST),
        (by(("user", 0)), ErrorCode.INVALID_REQUEST),
        (by(("user", 2), ("user", 2)), ErrorCode.INVALID_REQUEST),
        (by(("user", 2), ("ip", 2)), ErrorCode.INVALID_REQUEST),
    ):
        answer = await s.call(odd, version)
        assert (answer.error_code, answer.entries) == (code, None)
        assert answer.error_message


async def alter_client_quotas(s: Session, version: int, topic_id: bytes) -> None:
    ann = {"user": "ann"}
    good = entry(ann, producer_byte_rate=1024.0, request_percentage=12.5)

    async def altered(
        *entries: AlterClientQuotasRequestEntryData, validate_only: bool = False
    ) -> list[tuple[int, str | None]]:
        answer = await s.call(AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only), version)
        assert [[part.entity_type for part in one.entity] for one in answer.entries] == [
            [part.entity_type for part in one.entity] for one in entries
        ]
        return [(one.error_code, one.error_message) for one in answer.entries]

    assert await altered(good, validate_only=True) == [(0, None)]
    assert await described_quotas(s, version) == {}
    outcomes = await altered(good, entry({"user": "bob"}, no_such_rate=1.0))
    assert [code for code, _ in outcomes] == [0, ErrorCode.INVALID_REQUEST], "one by one"
    assert await described_quotas(s, version) == {
        (("user", "ann"),): {"producer_byte_rate": 1024.0, "request_percentage": 12.5}
    }
    assert await altered(entry(ann, producer_byte_rate=None, consumer_byte_rate=None)) == [(0, None)]
    assert await described_quotas(s, version) == {(("user", "ann"),): {"request_percentage": 12.5}}


QUOTA_EXCHANGES = {
    ApiKey.DESCRIBE_CLIENT_QUOTAS: describe_client_quotas,
    ApiKey.ALTER_CLIENT_QUOTAS: alter_client_quotas,
}
