"""Reads the state, coordinator and members of groups from the cluster.

The client library tells most of it. What it leaves out (the states of the new protocol, subscriptions, epochs) is asked
for by hand where the way to the cluster allows it (`protocol.py`), and left out where it does not.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from penstock.cli import exit_codes
from penstock.cli.connection import COORDINATOR_BACKOFF_S, PASSING, Cluster
from penstock.cli.errors import CliError
from penstock.cli.suggestions import did_you_mean

if TYPE_CHECKING:
    from penstock.cli.library import ConsumerGroupDescription, ConsumerGroupListing, MemberDescription
    from penstock.client import Connection
    from penstock.wire.messages.consumer_group_describe import Member as ConsumerMember

STATES = (
    "Stable",
    "Empty",
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "Dead",
    "Unknown",
)
TYPES = ("classic", "consumer")
INACTIVE = ("Empty", "Dead")
"""The states in which offsets may be changed from outside."""

_STATE_OF = {
    "PREPARING_REBALANCING": "PreparingRebalance",
    "COMPLETING_REBALANCING": "CompletingRebalance",
    "STABLE": "Stable",
    "DEAD": "Dead",
    "EMPTY": "Empty",
}
_MEMBER_TYPE = {0: "classic", 1: "consumer"}

Place = tuple[str, int]
"""A topic and a partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinator:
    id: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.id} ({self.host}:{self.port})"


@dataclass(slots=True, kw_only=True)
class Member:
    id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: Sequence[Place]
    target: Sequence[Place] | None = None
    """Where it is heading for, in the new protocol."""
    subscription: Sequence[str] | None = None
    """Topics; None where the cluster did not tell."""
    regex: str | None = None
    epoch: int | None = None
    rack: str | None = None
    type: str | None = None


@dataclass(slots=True, kw_only=True)
class GroupView:
    """A group as the cluster describes it."""

    name: str
    state: str
    type: str
    protocol: str
    """`consumer`, or nothing for a group that only stores offsets."""
    assignor: str
    coordinator: Coordinator | None
    members: list[Member] = field(default_factory=list)
    epoch: int | None = None
    assignment_epoch: int | None = None

    @property
    def owners(self) -> dict[Place, Member]:
        return {place: member for member in self.members for place in member.assignment}

    @property
    def is_active(self) -> bool:
        return self.state not in INACTIVE


def list_groups(cluster: Cluster) -> list[ConsumerGroupListing]:
    """All groups that the brokers know, by name. A broker that does not answer fails the command: some may be its."""
    deadline_s = time.monotonic() + cluster.timeout_s
    while True:
        listed = cluster.wait(cluster.admin.list_consumer_groups(request_timeout=cluster.timeout_s), "list the groups")
        if not listed.errors:
            return sorted(listed.valid or [], key=lambda group: group.group_id)
        error = getattr(listed.errors[0], "args", listed.errors)[0]
        if error.name() not in PASSING or time.monotonic() > deadline_s:
            raise cluster.failure(error, "list the groups")
        time.sleep(COORDINATOR_BACKOFF_S)


def describe_groups(
    cluster: Cluster, names: Iterable[str], *, details: bool = False
) -> dict[str, GroupView | CliError]:
    """Groups by name, or why one could not be described. One that is not there is told as NOT_FOUND.

    With `details`, members come with subscriptions and epochs where the cluster tells them.
    """
    wanted = list(dict.fromkeys(names))
    if not wanted:
        return {}
    # A copy: the library fills in the results by the mapping it returned.
    futures = dict(cluster.admin.describe_consumer_groups(wanted, request_timeout=cluster.timeout_s))
    views: dict[str, GroupView | CliError] = {}
    for name in wanted:
        try:
            asking = partial(_description, cluster, name, futures)
            view = _view(cluster.wait_for_coordinator(asking, f"describe the group {name}"))
            if view.state == "Dead" and not view.members:
                raise not_found(name)
            if details or view.state == "Unknown":
                _add_details(cluster, view)
            views[name] = view
        except CliError as error:
            if error.code == exit_codes.UNREACHABLE:
                raise
            views[name] = error
    return views


def not_found(name: str, known: Iterable[str] = ()) -> CliError:
    return CliError(
        f"there is no group {name}{did_you_mean(name, known)}",
        exit_codes.NOT_FOUND,
        "`penstock groups list` shows the groups there are",
    )


def _description(
    cluster: Cluster, name: str, futures: dict[str, Future[ConsumerGroupDescription]]
) -> Future[ConsumerGroupDescription]:
    """The answer that was asked for with all others, and a new one if it has to be asked for again."""
    if name in futures:
        return futures.pop(name)
    again: dict[str, Future[ConsumerGroupDescription]] = cluster.admin.describe_consumer_groups(
        [name], request_timeout=cluster.timeout_s
    )
    return again[name]


def _view(group: ConsumerGroupDescription) -> GroupView:
    node = group.coordinator
    kind = group.type.name.lower()
    return GroupView(
        name=group.group_id,
        state=_STATE_OF.get(group.state.name, "Unknown"),
        type=kind if kind in TYPES else "classic",
        protocol="" if group.is_simple_consumer_group else "consumer",
        assignor=group.partition_assignor or "",
        coordinator=Coordinator(id=node.id, host=node.host, port=node.port) if node is not None else None,
        members=sorted((_member(member, kind) for member in group.members), key=lambda member: member.id),
    )


def _member(member: MemberDescription, kind: str) -> Member:
    target = member.target_assignment
    return Member(
        id=member.member_id,
        instance_id=member.group_instance_id or None,
        client_id=member.client_id,
        host=member.host.removeprefix("/"),
        assignment=sorted((one.topic, one.partition) for one in member.assignment.topic_partitions),
        target=sorted((one.topic, one.partition) for one in target.topic_partitions)
        if target is not None and kind == "consumer"
        else None,
    )


def _add_details(cluster: Cluster, view: GroupView) -> None:
    from penstock.cli.protocol import CannotSpeak, connect_to_coordinator

    try:
        with connect_to_coordinator(cluster, view.name) as coordinator:
            if view.type == "consumer":
                _add_consumer_details(coordinator, view)
            else:
                _add_classic_details(coordinator, view)
    except CannotSpeak:
        return


def _add_consumer_details(coordinator: Connection, view: GroupView) -> None:
    from penstock.cli.protocol import check
    from penstock.wire.messages.consumer_group_describe import (
        ConsumerGroupDescribeRequest,
        ConsumerGroupDescribeResponse,
    )

    request = ConsumerGroupDescribeRequest(group_ids=[view.name])
    answer = coordinator.call(request, ConsumerGroupDescribeResponse)
    group = answer.groups[0]
    check(group.error_code, group.error_message, f"describe the group {view.name}")
    view.state = group.group_state
    view.assignor = group.assignor_name or view.assignor
    view.epoch = group.group_epoch
    view.assignment_epoch = group.assignment_epoch
    view.members = sorted(map(_consumer_member, group.members), key=lambda member: member.id)


def _consumer_member(member: ConsumerMember) -> Member:
    return Member(
        id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        host=member.client_host.removeprefix("/"),
        assignment=sorted((t.topic_name, p) for t in member.assignment.topic_partitions for p in t.partitions),
        target=sorted((t.topic_name, p) for t in member.target_assignment.topic_partitions for p in t.partitions),
        subscription=sorted(member.subscribed_topic_names),
        regex=member.subscribed_topic_regex or None,
        epoch=member.member_epoch,
        rack=member.rack_id or None,
        type=_MEMBER_TYPE.get(member.member_type),
    )


def _add_classic_details(coordinator: Connection, view: GroupView) -> None:
    from penstock.cli.protocol import check
    from penstock.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse

    answer = coordinator.call(DescribeGroupsRequest(groups=[view.name]), DescribeGroupsResponse)
    group = answer.groups[0]
    check(group.error_code, group.error_message, f"describe the group {view.name}")
    view.state = group.group_state
    subscribed = {member.member_id: member.member_metadata for member in group.members}
    for member in view.members:
        _add_subscription(member, subscribed.get(member.id, b""))


def _add_subscription(member: Member, metadata: bytes) -> None:
    """The subscription of a classic consumer; other protocol types have a format of their own."""
    from penstock.wire.codec import WireError, decode
    from penstock.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
    from penstock.wire.schema import versions_of

    if len(metadata) < 2:
        return
    # Newer versions only append.
    version = min(int.from_bytes(metadata[:2], "big"), versions_of(ConsumerProtocolSubscription)[-1])
    try:
        subscription, _ = decode(ConsumerProtocolSubscription, version, metadata, 2)
    except WireError:
        return
    member.subscription = sorted(subscription.topics)
    member.rack = subscription.rack_id or None
