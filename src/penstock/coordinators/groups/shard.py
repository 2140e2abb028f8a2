"""One partition of `__consumer_offsets`: every group that hashes to it, whatever its protocol, and their offsets.

Requests come in here and go to whoever knows the group's kind: `ClassicGroups`, or `ConsumerGroups` for those of
KIP-848. Offsets are the same for all.

**Loading** keeps what it reads as bytes. Offsets stay so (`Offsets`). A classic group's record is decoded when
somebody asks for the group, or soon after the load in the background, so that members of the former coordinator's
groups get their sessions; only the last of a group's records is ever decoded.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from penstock.coordinators.groups.classic import CLASSIC_TYPE, ClassicGroups
from penstock.coordinators.groups.classic_group import ClassicGroup, ClassicState
from penstock.coordinators.groups.classic_rebalance import join_refused
from penstock.coordinators.groups.config import GroupConfig
from penstock.coordinators.groups.consumer import ConsumerGroup, ConsumerGroups
from penstock.coordinators.groups.deletion import OffsetDeletion
from penstock.coordinators.groups.expiry import Expiry
from penstock.coordinators.groups.offset_requests import OffsetRequests
from penstock.coordinators.groups.offsets import Offsets
from penstock.coordinators.groups.records import decode_group, group_key, key_group
from penstock.coordinators.groups.requests import RequestInfo
from penstock.coordinators.shard import Shard, Ticket, TimerKey, Turn
from penstock.metadata import MetadataDelta
from penstock.wire.commits import PlainCommit
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.wire.messages.delete_groups import DeletableGroupResult
from penstock.wire.messages.describe_groups import DescribedGroup
from penstock.wire.messages.group_records import GROUP_METADATA_KEY, OFFSET_COMMIT_KEY
from penstock.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.wire.messages.join_group import JoinGroupRequest
from penstock.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from penstock.wire.messages.list_groups import ListedGroup, ListGroupsResponse
from penstock.wire.messages.offset_commit import OffsetCommitRequest
from penstock.wire.messages.offset_delete import OffsetDeleteRequest
from penstock.wire.messages.offset_fetch import OffsetFetchRequestGroup
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

GROUPS_PER_SHARD_MAX: Final = 1_000_000
GROUPS_DECODED_PER_TURN_MAX: Final = 100

DESCRIBE_NOT_FOUND_FROM: Final = 6

_DECODE_TIMER: Final = ("decode",)


class GroupShard(Shard):
    """Every request method answers through `turn.reply(ticket, …)`, at once or in a later turn."""

    def __init__(self, config: GroupConfig, partition_count: int) -> None:
        self.config = config
        self.partition_count = partition_count
        self.groups: dict[str, ClassicGroup | ConsumerGroup] = {}
        """Those that were asked for. See `find`, which also knows those that were only loaded."""
        self.offsets = Offsets(config.memory)
        self.deletion = OffsetDeletion(self)
        self.classic = ClassicGroups(self)
        self.consumers = ConsumerGroups(self)
        self._offset_requests = OffsetRequests(self)
        self._expiry = Expiry(self)
        self._undecoded: dict[str, bytes] = {}

    # -- groups ------------------------------------------------------------------------------------------------------

    def find(self, turn: Turn, group_id: str) -> ClassicGroup | ConsumerGroup | None:
        """The group, if there is one: of either protocol, or a simple one that has nothing but offsets."""
        group = self.find_managed(turn, group_id)
        if group is None and self.offsets.knows(group_id):
            group = self.groups[group_id] = ClassicGroup(group_id, turn.wall_ms)
        return group

    def find_managed(self, turn: Turn, group_id: str) -> ClassicGroup | ConsumerGroup | None:
        """The same without simple groups: thousands of them need no object each, as long as they just commit."""
        group = self.groups.get(group_id)
        if group is None:
            value = self._undecoded.pop(group_id, None)
            if value is not None:
                group = self.groups[group_id] = decode_group(group_id, value)
                self.classic.rebalances.resume(turn, group)
        return group

    def classic_group(self, group_id: str) -> ClassicGroup | None:
        """One that is known to have been found before: for timers."""
        group = self.groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def create_classic(self, turn: Turn, group_id: str) -> ClassicGroup:
        assert group_id not in self.groups
        group = self.groups[group_id] = ClassicGroup(group_id, turn.wall_ms)
        return group

    def remove_classic(self, turn: Turn, group: ClassicGroup) -> None:
        """An empty group goes for good; its offsets are the caller's."""
        self.classic.rebalances.dissolve(turn, group, ErrorCode.UNKNOWN_MEMBER_ID)
        del self.groups[group.group_id]
        turn.append(group_key(group.group_id), None)

    def group_ids(self) -> list[str]:
        """All groups there are, in an order that only depends on what happened."""
        return list(dict.fromkeys([*self.groups, *self._undecoded, *self.offsets.groups]))

    def has_room(self) -> bool:
        known = len(self.groups) + len(self._undecoded)
        return max(known, len(self.offsets.groups)) < GROUPS_PER_SHARD_MAX and not self.config.memory.is_full

    @property
    def undecoded_bytes(self) -> int:
        """Groups that were loaded and have not been looked at yet: soon there are few."""
        return sum(map(len, self._undecoded.values()))

    # -- members -----------------------------------------------------------------------------------------------------

    def join_group(self, turn: Turn, ticket: Ticket, info: RequestInfo, request: JoinGroupRequest) -> None:
        error = self.classic.check_join(request)
        group = self.find_managed(turn, request.group_id)
        if isinstance(group, ConsumerGroup) and group.is_empty and request.member_id:
            error = error or ErrorCode.UNKNOWN_MEMBER_ID
        if error:
            turn.reply(ticket, join_refused(info.version, error, request.member_id))
        elif isinstance(group, ClassicGroup) or group is None:
            self.classic.join(turn, ticket, info, group, request)
        elif group.is_empty:
            self.consumers.delete(turn, group)
            self.classic.join(turn, ticket, info, None, request)
        else:
            self.consumers.join_group(turn, ticket, info, group, request)

    def sync_group(self, turn: Turn, ticket: Ticket, info: RequestInfo, request: SyncGroupRequest) -> None:
        group = self.find_managed(turn, request.group_id)
        if isinstance(group, ConsumerGroup) and not group.is_empty:
            self.consumers.sync_group(turn, ticket, info, group, request)
        elif isinstance(group, ClassicGroup):
            self.classic.sync(turn, ticket, group, request)
        else:
            turn.reply(ticket, SyncGroupResponse(error_code=_not_a_member(request.group_id)))

    def heartbeat(self, turn: Turn, ticket: Ticket, info: RequestInfo, request: HeartbeatRequest) -> None:
        group = self.find_managed(turn, request.group_id)
        if isinstance(group, ClassicGroup):
            self.classic.heartbeat(turn, ticket, group, request)
        elif isinstance(group, ConsumerGroup) and not group.is_empty:
            self.consumers.classic_heartbeat(turn, ticket, info, group, request)
        else:
            turn.reply(ticket, HeartbeatResponse(error_code=_not_a_member(request.group_id)))

    def leave_group(self, turn: Turn, ticket: Ticket, info: RequestInfo, request: LeaveGroupRequest) -> None:
        group = self.find_managed(turn, request.group_id)
        if not request.group_id:
            turn.reply(ticket, LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID))
        elif isinstance(group, ConsumerGroup) and not group.is_empty:
            self.consumers.leave_group(turn, ticket, info, group, request)
        else:
            self.classic.leave(turn, ticket, info, group if isinstance(group, ClassicGroup) else None, request)

    def consumer_group_heartbeat(
        self, turn: Turn, ticket: Ticket, info: RequestInfo, request: ConsumerGroupHeartbeatRequest
    ) -> None:
        self.consumers.heartbeat(turn, ticket, info, request)

    # -- offsets -----------------------------------------------------------------------------------------------------

    def offset_commit(self, turn: Turn, ticket: Ticket, info: RequestInfo, request: OffsetCommitRequest) -> None:
        self._offset_requests.commit(turn, ticket, info, request)

    def offset_commit_plain(self, turn: Turn, ticket: Ticket, info: RequestInfo, commit: PlainCommit) -> None:
        """The same for a request in its plain form."""
        self._offset_requests.commit_plain(turn, ticket, info, commit)

    def offset_fetch_group(
        self,
        turn: Turn,
        ticket: Ticket,
        info: RequestInfo,
        request: OffsetFetchRequestGroup,
        require_stable: bool = False,
    ) -> None:
        """One group of an OffsetFetch: the answer is an OffsetFetchResponseGroup."""
        self._offset_requests.fetch(turn, ticket, info, request, require_stable)

    def offset_delete(self, turn: Turn, ticket: Ticket, info: RequestInfo, request: OffsetDeleteRequest) -> None:
        self._offset_requests.delete(turn, ticket, request)

    # -- administration ----------------------------------------------------------------------------------------------

    def describe_group(self, turn: Turn, ticket: Ticket, info: RequestInfo, group_id: str) -> None:
        """One group of a DescribeGroups: the answer is a DescribedGroup."""
        group = self.find(turn, group_id)
        if isinstance(group, ClassicGroup):
            turn.reply(ticket, self.classic.describe(group))
            return
        described = DescribedGroup(group_id=group_id, group_state=ClassicState.DEAD.value)
        if info.version >= DESCRIBE_NOT_FOUND_FROM:
            described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            is_other = "is not a classic group." if group is not None else "not found."
            described.error_message = f"Group {group_id} {is_other}"
        turn.reply(ticket, described)

    def consumer_group_describe_group(self, turn: Turn, ticket: Ticket, info: RequestInfo, group_id: str) -> None:
        """One group of a ConsumerGroupDescribe."""
        self.consumers.describe(turn, ticket, info, group_id)

    def list_groups(self, turn: Turn, ticket: Ticket, states_filter: list[str], types_filter: list[str]) -> None:
        """All groups whose state and type are among those asked for, in any case of letters; empty asks for all."""
        states = [state.lower() for state in states_filter]
        types = [kind.lower() for kind in types_filter]
        everything = [self._listed(turn, group_id) for group_id in self.group_ids()]
        groups = [
            listed
            for listed in everything
            if (not states or listed.group_state.lower() in states) and (not types or listed.group_type in types)
        ]
        turn.reply(ticket, ListGroupsResponse(groups=groups))

    def _listed(self, turn: Turn, group_id: str) -> ListedGroup:
        group = self.find_managed(turn, group_id)
        if group is None:
            return ListedGroup(group_id, "", ClassicState.EMPTY.value, CLASSIC_TYPE)
        return self.consumers.listed(group) if isinstance(group, ConsumerGroup) else self.classic.listed(group)

    def delete_group(self, turn: Turn, ticket: Ticket, group_id: str) -> None:
        """One group of a DeleteGroups: the answer is a DeletableGroupResult."""
        error = self._check_delete(turn, group_id)
        if error:
            turn.reply(ticket, DeletableGroupResult(group_id, error))
            return
        entries = [(group_id, key, value) for key, value in self.offsets.entries(group_id)]

        def remove(last: Turn) -> None:
            error = self._check_delete(last, group_id)
            if error is ErrorCode.NONE:
                group = self.groups[group_id]
                if isinstance(group, ClassicGroup):
                    self.remove_classic(last, group)
                else:
                    self.consumers.delete(last, group)
            last.reply(ticket, DeletableGroupResult(group_id, error))

        self.deletion.delete(turn, entries, remove)

    def _check_delete(self, turn: Turn, group_id: str) -> ErrorCode:
        group = self.find(turn, group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.NONE if group.is_empty else ErrorCode.NON_EMPTY_GROUP

    # -- life --------------------------------------------------------------------------------------------------------

    def replay(self, offset: int, producer_id: int, producer_epoch: int, key: bytes, value: bytes | None) -> None:
        kind = key[1] if len(key) > 3 and key[0] == 0 else -1
        if 0 <= kind <= OFFSET_COMMIT_KEY:
            self.offsets.load(offset, producer_id, key, value)
        elif kind == GROUP_METADATA_KEY:
            group_id = key_group(key)
            if value is None:
                self._undecoded.pop(group_id, None)
            else:
                self._undecoded[group_id] = value
        elif kind in CONSUMER_KEYS:
            self.consumers.replay(kind, key, value)
        # Others are of kinds of groups that this release does not have; Kafka passes over what it does not know too.

    def replay_end_marker(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        self.offsets.end_transaction(producer_id, committed)

    def on_loaded(self, turn: Turn) -> None:
        self.consumers.on_loaded(turn)
        self._expiry.schedule(turn)
        self._decode_some(turn)

    def _decode_some(self, turn: Turn, key: TimerKey = _DECODE_TIMER) -> None:
        for group_id in list(islice(self._undecoded, GROUPS_DECODED_PER_TURN_MAX)):
            self.find_managed(turn, group_id)
        if self._undecoded:
            turn.set_timer(_DECODE_TIMER, 0, self._decode_some)

    def on_image(self, turn: Turn, delta: MetadataDelta) -> None:
        # Only a record proves that a topic was deleted; an image that merely lacks it costs no offsets.
        deleted = delta.topics_deleted if delta.is_replayed else []
        entries = [
            entry
            for topic in deleted
            for entry in self.offsets.entries_of_topic(topic.name, len(topic.partitions))
        ]
        if entries:
            self.deletion.delete(turn, entries)
        self.consumers.on_image(turn, delta)

    def on_resigned(self) -> None:
        self.groups.clear()
        self.offsets.discard()
        self._undecoded.clear()

    def durable_state(self) -> dict[str, object]:
        """What a shard that loads what this one wrote holds too. Groups in a rebalance are left out: the log has the
        generation before."""
        classic: dict[str, object] = {}
        for group_id in sorted([*self.groups, *self._undecoded]):
            group = self.groups.get(group_id)
            if group is None:
                group = decode_group(group_id, self._undecoded[group_id])
            if isinstance(group, ClassicGroup) and group.protocol_type is not None:
                classic[group_id] = _durable(group)
        return {"offsets": self.offsets.durable_state(), "classic": classic, "consumer": self.consumers.durable_state()}


CONSUMER_KEYS: Final = (3, 4, 5, 6, 7, 8, 16)


def _not_a_member(group_id: str) -> ErrorCode:
    return ErrorCode.UNKNOWN_MEMBER_ID if group_id else ErrorCode.INVALID_GROUP_ID


def _durable(group: ClassicGroup) -> object:
    if group.state not in (ClassicState.EMPTY, ClassicState.STABLE):
        return "rebalancing"
    return {
        "generation": group.generation,
        "protocol": (group.protocol_type, group.protocol_name),
        "leader": group.leader_id,
        "since": group.state_timestamp_ms,
        "subscribed": None if group.subscribed_topics is None else sorted(group.subscribed_topics),
        "members": {
            member.member_id: (
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.metadata(group.protocol_name),
                member.assignment,
            )
            for member in group.members.values()
        },
    }
