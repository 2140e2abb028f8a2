"""The marker that `penstock metadata recover` leaves in rebuilt metadata, and what a start does with it.

`recovered.json` next to the metadata says which topics lost their settings, and that former ACLs are unknown. Every
start reads it, and its warning names the topics that still have the settings from the recovery. A damaged file prevents
the start, because its content is unknown. The operator removes the file to end the warnings.

ACLs may be among the lost records, and a missing DENY opens access. So while the file exists, an authoriser lets in
only `super.users`. The operator compares the ACLs with what they should be, and then removes the file.
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
"""Settings for topics whose own are lost: the defaults would delete records after a week."""


class Marker(msgspec.Struct, frozen=True, rename="camel"):
    """States that the metadata was rebuilt, and what is uncertain in it."""

    recovered_ms: int
    acls: str = "unknown"
    topics_without_configuration: tuple[str, ...] = ()


def read_marker(disk: Disk) -> Marker | None:
    """The marker; None if the metadata was never rebuilt. Raises StartRefused if the file is damaged."""
    if not disk.exists(MARKER_PATH):
        return None
    try:
        return msgspec.json.decode(disk.read_bytes(MARKER_PATH), type=Marker)
    except msgspec.DecodeError as error:
        raise StartRefused(
            f"{disk.root}/{MARKER_PATH} is damaged ({error}). It states that this metadata was recovered and what was "
            "lost. Restore it from a backup, or remove it if you know what was lost"
        ) from None


def tell_recovered(events: EventLog, marker: Marker, image: MetadataImage, *, is_closed: bool = False) -> None:
    """Warn about the topics whose settings have not been set since the recovery, and about an authoriser that is closed
    because of it."""
    if is_closed:
        events.warning(
            "access is closed",
            reason="ACLs may have been lost when the metadata was recovered, so only super.users are let in",
            acls=len(image.acls),
            hint=f"check the ACLs with `penstock acls list`, then remove {MARKER_PATH} while the broker is stopped",
        )
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
        hint="set their configurations again; until then they are neither compacted nor deleted by retention"
        if unset
        else f"remove {MARKER_PATH} while the broker is stopped to end this warning",
    )
