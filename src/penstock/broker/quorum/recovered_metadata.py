"""What a start must know of metadata that was made anew by `penstock metadata recover`.

The recovery leaves `recovered.json` beside the metadata. It says which topics lost their settings, and that nobody
knows which ACLs there were. Every start reads it and names, in a warning, the topics that still have the settings which
the recovery gave them. A damaged file is refused: nobody knows what it said. An operator ends this by removing it.

Lost ACLs cannot open anything in this release, which has no authoriser: everyone may do everything, and a configuration
with `authorizer.class.name` is refused. An authoriser must refuse to start while there is such a file.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from penstock.broker.layout import METADATA_DIRECTORY
from penstock.broker.starting import StartRefused
from penstock.metadata import MetadataImage, ResourceType
from penstock.runtime import Disk
from penstock.runtime.eventlog import EventLog

MARKER_NAME = "recovered.json"
MARKER_PATH = f"{METADATA_DIRECTORY}/{MARKER_NAME}"
KEEP_EVERYTHING: Mapping[str, str] = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""For topics whose settings are lost: the defaults would delete records after a week."""


class Marker(msgspec.Struct, frozen=True, rename="camel"):
    """Says that this metadata was made anew, and what must not be taken for granted."""

    recovered_ms: int
    acls: str = "unknown"
    topics_without_configuration: tuple[str, ...] = ()


def read_marker(disk: Disk) -> Marker | None:
    """None if the metadata was never made anew. Raises StartRefused if nobody knows what the file said."""
    if not disk.exists(MARKER_PATH):
        return None
    try:
        return msgspec.json.decode(disk.read_bytes(MARKER_PATH), type=Marker)
    except msgspec.DecodeError as error:
        raise StartRefused(
            f"{disk.root}/{MARKER_PATH} is damaged ({error}). It says that this metadata was recovered, and what was "
            "lost. Restore it from a copy, or remove it if that is known"
        ) from None


def tell_recovered(events: EventLog, marker: Marker, image: MetadataImage) -> None:
    """Name the topics whose settings nobody has set since the recovery."""
    unset = [
        name
        for name in marker.topics_without_configuration
        if image.topic(name) is not None
        and all(image.config(ResourceType.TOPIC, name).get(key) == value for key, value in KEEP_EVERYTHING.items())
    ]
    events.warning(
        "metadata was recovered",
        recovered_ms=marker.recovered_ms,
        acls=marker.acls,
        topics_that_keep_everything=",".join(unset),
        hint="set their configurations again: until then they are neither compacted nor cut"
        if unset
        else f"remove {MARKER_PATH} while the broker is stopped, and this is no longer told",
    )
