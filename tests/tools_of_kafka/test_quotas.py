"""Client quotas: kafka-configs sets and shows them, and requests get Kafka's answers."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from penstock.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from penstock.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from tools_of_kafka.asking import ask
from tools_of_kafka.both import Both

pytestmark = [pytest.mark.needs_maven, pytest.mark.xdist_group("tools of Kafka")]


def test_quotas_are_set_shown_and_removed(both: Both, name: str) -> None:
    for entity, setting in (
        (("users", name), "producer_byte_rate=1024,consumer_byte_rate=2048"),
        (("users",), "request_percentage=12.5"),
        (("clients", name), "controller_mutation_rate=0.5"),
        (("clients",), "producer_byte_rate=9007199254740993"),
        (("users", name, "clients", name), "producer_byte_rate=7"),
        (("users", None, "clients", name), "consumer_byte_rate=8"),
        (("users", None, "clients", None), "consumer_byte_rate=9"),
        (("ips", "10.0.0.7"), "connection_creation_rate=5"),
        (("ips",), "connection_creation_rate=50"),
    ):
        which = selected(*entity)
        keys = ",".join(one.partition("=")[0] for one in setting.split(","))
        assert both.same("kafka-configs", "--alter", *which, "--add-config", setting).code == 0
        # Kafka's broker follows its controller, and describes a quota as soon as it has heard of it.
        both.wait_for(keys.split(",")[0], "kafka-configs", "--describe", *which)
        both.same("kafka-configs", "--describe", *which)
        assert both.same("kafka-configs", "--alter", *which, "--delete-config", keys).code == 0


def selected(*entity: str | None) -> list[str]:
    """The tool's options for (type, name, type, name); a name that is None or left out is the default."""
    options: list[str] = []
    for kind, named in zip(entity[::2], (*entity[1::2], None), strict=False):
        assert kind is not None
        options += ["--entity-type", kind]
        options += ["--entity-default"] if named is None else ["--entity-name", named]
    return options


@pytest.mark.parametrize(
    ("entity", "setting"),
    [
        (("users", "a"), "producer_byte_rate=0"),
        (("users", "a"), "producer_byte_rate=1.5"),
        (("users", "a"), "no_such_rate=1"),
        (("ips", "10.0.0.7"), "producer_byte_rate=1"),
    ],
)
def test_what_kafka_refuses_is_refused(both: Both, entity: tuple[str, ...], setting: str) -> None:
    both.refused("kafka-configs", "--alter", *selected(*entity), "--add-config", setting)


def quota_filter(
    *components: tuple[str, int], match: str | None = None, strict: bool = False
) -> DescribeClientQuotasRequest:
    return DescribeClientQuotasRequest(
        components=[ComponentData(entity_type=kind, match_type=how, match=match) for kind, how in components],
        strict=strict,
    )


def alteration(entity: Mapping[str, str | None], *ops: OpData) -> AlterClientQuotasRequestEntryData:
    parts = [AlterClientQuotasRequestEntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()]
    return AlterClientQuotasRequestEntryData(entity=parts, ops=list(ops))


ASKED = [
    quota_filter(),
    quota_filter(("user", 2), ("client-id", 1)),
    quota_filter(("", 2)),
    quota_filter(("odd", 2)),
    quota_filter(("user", 9)),
    quota_filter(("user", 0)),
    quota_filter(("user", 0), match="nobody", strict=True),
    quota_filter(("user", 1), match="nobody"),
    quota_filter(("user", 2), match="nobody"),
    quota_filter(("user", 2), ("user", 2)),
    quota_filter(("ip", 2), ("user", 2)),
    *(
        AlterClientQuotasRequest(entries=[alteration(entity, *ops)], validate_only=True)
        for entity, ops in (
            ({"user": "a"}, [OpData(key="producer_byte_rate", remove=True)]),
            ({"user": "a"}, [OpData(key="producer_byte_rate", value=5.0)]),
            ({"user": "a"}, [OpData(key="producer_byte_rate", value=-5.0)]),
            ({"user": "a"}, [OpData(key="producer_byte_rate", value=1.5)]),
            ({"user": "a"}, [OpData(key="producer_byte_rate", value=1e20)]),
            ({"user": "a"}, [OpData(key="connection_creation_rate", value=1.0)]),
            ({"user": "a"}, [OpData(key="odd", value=1.0)]),
            ({"user": ""}, [OpData(key="producer_byte_rate", value=1.0)]),
            ({"odd": "a"}, [OpData(key="producer_byte_rate", value=1.0)]),
            ({}, [OpData(key="producer_byte_rate", value=1.0)]),
            ({"ip": "10.0.0.1"}, [OpData(key="producer_byte_rate", value=1.0)]),
            ({"ip": "10.0.0.1"}, [OpData(key="connection_creation_rate", value=1e10)]),
            ({"ip": None}, [OpData(key="connection_creation_rate", value=1.0)]),
        )
    ),
]


def test_requests_get_kafkas_answers_in_every_version(both: Both) -> None:
    for request in ASKED:
        for version in (0, 1):
            kafka, penstock = both.each(lambda server, r=request, v=version: ask(server, r, v))  # type: ignore[misc]
            assert penstock == kafka, f"{request} v{version}"
