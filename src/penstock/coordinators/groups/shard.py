"""One partition of `__consumer_offsets`: all groups that hash to it, of both protocols, and their offsets.

The shard passes requests to `ClassicGroups` or, for groups of KIP-848, `ConsumerGroups`. Offsets work the same way for
both.

**Loading** keeps what it reads as bytes (`GroupTable`, `Offsets`). Classic groups are decoded soon after the load, in
the background, so that members of the former coordinator's groups get their sessions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.coordinators.groups.classic import CLASSIC_TYPE, ClassicGroups
from penstock.coordinators.groups.classic_group import ClassicGroup, ClassicState
from penstock.coordinators.groups.classic_rebalance import join_refused
from penstock.coordinators.groups.config import GroupConfig
from penstock.coordinators.groups.consumer.group import ConsumerGroup
from penstock.coordinators.groups.consumer.groups import ConsumerGroups
from penstock.coordinators.groups.deletion import OffsetDeletion
from penstock.coordinators.groups.expiry import Expiry
from penstock.coordinators.groups.offset_requests import OffsetRequests
from penstock.coordinators.groups.records import key_group
from penstock.coordinators.groups.table import AnyGroup, GroupTable
from penstock.coordinators.groups.transactional_commits import TransactionalCommits
from penstock.coordinators.shard import EndMarker, RequestInfo, Shard, Ticket, TimerKey, Turn
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
from penstock.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

GROUPS_DECODED_PER_TURN_MAX: Final = 100

DESCRIBE_NOT_FOUND_FROM: Final = 6

_DECODE_TIMER: Final = ("decode",)


class GroupShard(Shard):
    """Every request method answers through `turn.reply(ticket, …)`, at once or in a later turn."""

    def __init__(self, config: GroupConfig) -> None:
        self.table = GroupTable(config, lambda turn, group: self.classic.rebalances.resume(turn, group))
        self.groups = self.table.groups
        self.offsets = self.table.offsets
        self.classic = ClassicGroups(self.table)
        self.consumers = ConsumerGroups(self.table, self.classic.rebalances)
        self._deletion = OffsetDeletion(self.table)
        self._offset_requests = OffsetRequests(self.table, self._deletion, self.classic)
        self._transactional_commits = TransactionalCommits(self.table)
        self._expiry = Expiry(self.table, self._deletion, self._remove)

    @property
    def config(self) -> GroupConfig:
        return self.table.config

    @config.setter
    def config(self, config: GroupConfig) -> None:
        self.table.config = config

    # -- members -----------------------------------------------------------------------------------------------------

    def join_group(self, turn: Turn, ticket: Ticket, info: RequestInfo, request: JoinGroupRequest) -> None:
        error = self.classic.joins.check(request)
        group = self.table.find_managed(turn, request.group_id)
        if isinstance(group, ConsumerGroup) and group.is_empty and request.member_id:
            error = error or ErrorCode.UNKNOWN_MEMBER_ID
        if error:
            turn.reply(ticket, join_refused(info.version, error, request.member_id))
        elif isinstance(group, ClassicGroup) or group is None:
            self.classic.joins.join(turn, ticket, info, group, request)
        elif group.is_empty:
            self.consumers.delete(turn, group)
            self.classic.joins.join(turn, ticket, info, None, request)
        else:
            self.consumers.classic_members.join(turn, ticket, info, group, request)

    def sync_group(self, turn: Turn, ticket: Ticket, info: RequestInfo, request: SyncGroupRequest) -> None:
        group = self.table.find_managed(turn, request.group_id)
        if isinstance(group, ConsumerGroup) and not group.is_empty:
            self.consumers.classic_members.sync(turn, ticket, group, request)
        elif isinstance(group, ClassicGroup):
            self.classic.sync(turn, ticket, group, request)
        else:
            turn.reply(ticket, SyncGroupResponse(error_code=_not_a_member(request.group_id)))

    def heartbeat(self, turn: Turn, ticket: Ticket, info: RequestInfo, request: HeartbeatRequest) -> None:
        group = self.table.find_managed(turn, request.group_id)
        if isinstance(group, ClassicGroup):
            self.classic.heartbeat(turn, ticket, group, request)
        elif isinstance(group, ConsumerGroup) and not group.is_empty:
            self.consumers.classic_members.heartbeat(turn, ticket, group, request)
        else:
            turn.reply(ticket, HeartbeatResponse(error_code=_not_a_member(request.group_id)))

    def leave_group(self, turn: Turn, ticket: Ticket, info: RequestInfo, request: LeaveGroupRequest) -> None:
        group = self.table.find_managed(turn, request.group_id)
        if not request.group_id:
            turn.reply(ticket, LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID))
        elif isinstance(group, ConsumerGroup) and not group.is_empty:
            self.consumers.classic_members.leave(turn, ticket, info, group, request)
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
        """OffsetCommit for a request in its plain form."""
        self._offset_requests.commit_plain(turn, ticket, info, commit)

    def txn_offset_commit(self, turn: Turn, ticket: Ticket, info: RequestInfo, request: TxnOffsetCommitRequest) -> None:
        self._transactional_commits.commit(turn, ticket, info, request)

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
        group = self.table.find(turn, group_id)
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

    def list_groups(
        self,
        turn: Turn,
        ticket: Ticket,
        states_filter: list[str],
        types_filter: list[str],
        among: Sequence[str] | None = None,
    ) -> None:
        """List the groups with these states and types (case-insensitive); an empty filter matches all.

        `among`: only these ids, those of them that are still there.
        """
        states = [state.lower() for state in states_filter]
        types = [kind.lower() for kind in types_filter]
        ids = self.table.group_ids() if among is None else [one for one in among if self.table.has(one)]
        everything = [self._listed(turn, group_id) for group_id in ids]
        groups = [
            listed
            for listed in everything
            if (not states or listed.group_state.lower() in states) and (not types or listed.group_type in types)
        ]
        turn.reply(ticket, ListGroupsResponse(groups=groups))

    def _listed(self, turn: Turn, group_id: str) -> ListedGroup:
        group = self.table.find_managed(turn, group_id)
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
                self._remove(last, self.groups[group_id])
            last.reply(ticket, DeletableGroupResult(group_id, error))

        self._deletion.delete(turn, entries, remove)

    def _remove(self, turn: Turn, group: AnyGroup) -> None:
        """Delete an empty group. The caller deletes its offsets."""
        if isinstance(group, ClassicGroup):
            self.classic.rebalances.remove(turn, group)
        else:
            self.consumers.delete(turn, group)

    def _check_delete(self, turn: Turn, group_id: str) -> ErrorCode:
        group = self.table.find(turn, group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.NONE if group.is_empty else ErrorCode.NON_EMPTY_GROUP

    # -- life --------------------------------------------------------------------------------------------------------

    def replay(self, offset: int, producer_id: int, producer_epoch: int, key: bytes, value: bytes | None) -> None:
        kind = key[1] if len(key) > 3 and key[0] == 0 else -1
        if 0 <= kind <= OFFSET_COMMIT_KEY:
            self.offsets.load(offset, producer_id, key, value)
        elif kind == GROUP_METADATA_KEY:
            self.table.load_classic(key_group(key), value)
        elif kind in CONSUMER_KEYS:
            self.consumers.replay(kind, key, value)
        # Records of group types that this release does not support are ignored, as in Kafka.

    def replay_end_marker(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        self.offsets.end_transaction(producer_id, committed)

    def end_transaction(self, turn: Turn, marker: EndMarker) -> None:
        """A transaction that committed offsets here ends: they take effect, or are discarded. The marker makes that
        durable; no answer that depends on it is sent before it is committed."""
        turn.end_transaction(marker)
        self.offsets.end_transaction(marker.producer.id, marker.committed)

    def on_loaded(self, turn: Turn) -> None:
        self.consumers.on_loaded(turn)
        self._expiry.schedule(turn)
        self._decode_some(turn)

    def _decode_some(self, turn: Turn, key: TimerKey = _DECODE_TIMER) -> None:
        if self.table.decode_some(turn, GROUPS_DECODED_PER_TURN_MAX):
            turn.set_timer(_DECODE_TIMER, 0, self._decode_some)

    def on_image(self, turn: Turn, delta: MetadataDelta) -> None:
        # Only a record proves that a topic was deleted. If an image merely lacks the topic, its offsets are kept.
        deleted = delta.topics_deleted if delta.is_replayed else []
        entries = [
            entry for topic in deleted for entry in self.offsets.entries_of_topic(topic.name, len(topic.partitions))
        ]
        if entries:
            self._deletion.delete(turn, entries)
        self.consumers.on_image(turn, delta)

    def on_resigned(self) -> None:
        self.table.clear()

    def durable_state(self) -> dict[str, object]:
        """The state that replaying the log must reproduce. A rebalance under way is not part of it."""
        classic = {
            group_id: _durable(group)
            for group_id, group in self.table.classic_groups().items()
            if group.protocol_type is not None
        }
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
