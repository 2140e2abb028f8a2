"""The controller's decisions about configurations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from penstock.config import (
    Alteration,
    AlterOperation,
    BrokerConfig,
    alter_broker,
    alter_client_metrics,
    alter_group,
    alter_topic,
)
from penstock.metadata.image import MetadataImage, ResourceType
from penstock.metadata.requests import DONE, ConfigAlteration, ConfigReplacement, ConfigResult, Outcome
from penstock.metadata.topic_control import check_record_total
from penstock.metadata.topic_names import validate_topic_name
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.metadata_records import ConfigRecord, MetadataRecord

KNOWN_TYPES = tuple(ResourceType)
ALTERED_TYPES = (ResourceType.TOPIC, ResourceType.BROKER, ResourceType.GROUP, ResourceType.CLIENT_METRICS)
BROKER_ID_MAX = 2**31 - 1
BROKER_NAME_LENGTH_MAX = 11
"""The digits of the number above, with a sign. Python refuses to parse thousands of digits."""

C = TypeVar("C", ConfigAlteration, ConfigReplacement)


class ConfigControl:
    """Decides on one image. A resource's changes are all made or none; resources are independent of each other."""

    def __init__(self, image: MetadataImage, config: BrokerConfig) -> None:
        self._image = image
        self._config = config

    def alter(self, resources: Sequence[ConfigAlteration]) -> tuple[list[MetadataRecord], list[ConfigResult]]:
        """IncrementalAlterConfigs."""
        return self._each(resources, lambda resource: resource.alterations)

    def replace(self, resources: Sequence[ConfigReplacement]) -> tuple[list[MetadataRecord], list[ConfigResult]]:
        """AlterConfigs: settings that are not named return to their defaults."""

        def alterations(resource: ConfigReplacement) -> tuple[Alteration, ...]:
            named = dict(resource.configs)
            known = resource.resource_type in ALTERED_TYPES
            current = self._image.config(resource.resource_type, resource.name) if known else {}
            removed = [Alteration(name, AlterOperation.DELETE) for name in current if name not in named]
            return (*(Alteration(name, AlterOperation.SET, value) for name, value in resource.configs), *removed)

        return self._each(resources, alterations)

    def _each(
        self,
        resources: Sequence[C],
        alterations: Callable[[C], tuple[Alteration, ...]],
    ) -> tuple[list[MetadataRecord], list[ConfigResult]]:
        asked: dict[tuple[int, str], int] = {}
        for resource in resources:
            key = (resource.resource_type, resource.name)
            asked[key] = asked.get(key, 0) + 1
        records: list[MetadataRecord] = []
        results: dict[tuple[int, str], ConfigResult] = {}
        for resource in resources:
            key = (resource.resource_type, resource.name)
            try:
                if asked[key] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate resource.")
                if resource.resource_type not in KNOWN_TYPES:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")
                altered = self._alter(resource.resource_type, resource.name, alterations(resource))
            except KafkaError as error:
                results[key] = ConfigResult(*key, Outcome.of(error))
            else:
                records += altered
                results[key] = ConfigResult(*key, DONE)
        check_record_total(records)
        return records, list(results.values())

    def _alter(self, resource_type: int, resource_name: str, alterations: tuple[Alteration, ...]) -> list[ConfigRecord]:
        if resource_type == ResourceType.BROKER_LOGGER:
            return _refuse_loggers(alterations)
        before = self._image.config(resource_type, resource_name)
        if resource_type == ResourceType.TOPIC:
            self._check_topic(resource_name)
            after = alter_topic(before, alterations)
        elif resource_type == ResourceType.GROUP:
            if not resource_name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
            after = alter_group(before, alterations, self._config)
        elif resource_type == ResourceType.CLIENT_METRICS:
            if not resource_name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Default client-metrics resources are not allowed.")
            after = alter_client_metrics(resource_name, before, alterations)
        else:
            self._check_broker(resource_name)
            after = alter_broker(before, alterations, self._config, per_broker=resource_name != "")
        # Brokers act on every record that names them, changed or not, to reload the files that it names
        # (KAFKA-14136).
        always = dict.fromkeys(alteration.name for alteration in alterations if resource_type == ResourceType.BROKER)
        return _differences(resource_type, resource_name, before, after, always)

    def _check_topic(self, name: str) -> None:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        validate_topic_name(name)
        if self._image.topic(name) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")

    def _check_broker(self, name: str) -> None:
        if not name:
            return
        is_number = len(name) <= BROKER_NAME_LENGTH_MAX and name.isascii() and name.removeprefix("-").isdigit()
        if not is_number or int(name) > BROKER_ID_MAX:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Unable to parse broker name as a base 10 number.")
        broker_id = int(name)
        if broker_id < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid negative broker ID.")
        if self._image.broker(broker_id) is None:
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No broker with id {broker_id} found.")


def _refuse_loggers(alterations: tuple[Alteration, ...]) -> list[ConfigRecord]:
    if alterations:
        logger = alterations[0].name
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Logger {logger} does not exist! Loggers belong to one broker: send the request to that broker.",
        )
    return []


def _differences(
    resource_type: int,
    resource_name: str,
    before: Mapping[str, str],
    after: Mapping[str, str],
    always: Mapping[str, None],
) -> list[ConfigRecord]:
    names = list(dict.fromkeys((*before, *after, *always)))
    return [
        ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=name, value=after.get(name))
        for name in names
        if before.get(name) != after.get(name) or name in always
    ]
