"""The `quorum-state` file: Kafka's JSON, version 1 (KIP-853).

    {"leaderId":1,"leaderEpoch":7,"votedId":1,"votedDirectoryId":"J8aAPcfLQt2bqs1JT_rMgQ","data_version":1,"crc32c":…}

Two fields are ours, and Kafka's tools ignore them. `logSuspect`, written only if true, says that the log lost records
that it may have acknowledged. `crc32c` is the checksum of the file without this field: a flipped bit could allow a
second vote. A file without it was written by Kafka, or by a release before the field existed.
"""

from __future__ import annotations

import msgspec
from crc32c import crc32c
from msgspec.structs import replace

from penstock.raft.types import NO_NODE, HardState, ReplicaKey
from penstock.wire.uuids import ZERO_UUID, format_uuid, parse_uuid

FILE_NAME = "quorum-state"
DATA_VERSION = 1


class QuorumStateError(Exception):
    """The file is damaged. Without it the node could vote twice in one epoch, so it must not start."""


class _QuorumState(msgspec.Struct, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    leader_id: int
    leader_epoch: int
    voted_id: int
    voted_directory_id: str
    data_version: int = msgspec.field(name="data_version")
    log_suspect: bool = False
    crc32c: int | None = None


def format_quorum_state(state: HardState) -> bytes:
    voted = state.voted or ReplicaKey(NO_NODE, ZERO_UUID)
    content = _QuorumState(
        state.leader_id, state.epoch, voted.id, format_uuid(voted.directory_id), DATA_VERSION, state.suspect
    )
    content.crc32c = _checksum(content)
    return msgspec.json.encode(content)


def _checksum(content: _QuorumState) -> int:
    return crc32c(msgspec.json.encode(replace(content, crc32c=None)))


def _damaged(reason: str) -> str:
    return (
        f"{FILE_NAME} is damaged ({reason}), so this node's vote is unknown. Restore the file. If the quorum has other "
        "voters, format this node and let it join as a new voter; for a single node, see `penstock metadata recover`"
    )


def parse_quorum_state(data: bytes) -> HardState:
    try:
        state = msgspec.json.decode(data, type=_QuorumState)
        voted = ReplicaKey(state.voted_id, parse_uuid(state.voted_directory_id))
    except (msgspec.DecodeError, ValueError) as error:
        raise QuorumStateError(_damaged(str(error))) from None
    if state.crc32c is not None and state.crc32c != _checksum(state):
        raise QuorumStateError(_damaged("its checksum is wrong"))
    if state.data_version != DATA_VERSION:
        raise QuorumStateError(
            f"{FILE_NAME} has data_version {state.data_version}, but this release supports only {DATA_VERSION}: "
            f"start the release that wrote it"
        )
    if state.leader_epoch < 0:
        raise QuorumStateError(f"{FILE_NAME} has the negative epoch {state.leader_epoch}")
    return HardState(state.leader_epoch, state.leader_id, None if voted.id == NO_NODE else voted, state.log_suspect)
