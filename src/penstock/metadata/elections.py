"""How a partition's ISR, eligible leaders and leader change when replicas come and go.

The rules are Kafka's (KIP-966 for the eligible leader replicas, ELR):

- The leader comes from the ISR. If no ISR member can lead, it comes from the ELR. If unclean elections are allowed or
  requested, any available replica may lead, and records that only others hold are lost.
- While the ISR is smaller than the minimum, the high watermark stands still. So a replica that leaves such an ISR still
  has every acknowledged record and may lead later: it enters the ELR. Once the ISR is large enough again, the ELR is
  emptied.
- A replica that may have lost acknowledged records (a restart without proof of a clean stop) leaves the ISR and the ELR
  at once. It stays only as the very last of both: no other replica has more, and a new leader epoch makes readers
  check again.
- A replica that returns with an empty disk has nothing, so it does not stay even as the last. Its place goes to a
  replica that was eligible before and restarted uncleanly (`last_known_elr`), which has at least what reached its disk.
- A reassignment completes as soon as the ISR allows it (`reassignments`). The removed replicas must notice, so that is
  a new leader epoch, even if the leader stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum

import msgspec
from msgspec.structs import replace

from penstock.metadata.image import NO_LEADER, LeaderRecoveryState, PartitionState
from penstock.metadata.reassignments import completed
from penstock.wire.messages.metadata_records import PartitionChangeRecord


class Election(IntEnum):
    """The kind of election; the first two values are those of ElectLeaders."""

    PREFERRED = 0
    UNCLEAN = 1
    ANY = 2
    """Elect a leader only if the current one can no longer lead."""


class Rules(msgspec.Struct, frozen=True):
    """The rules for electing a leader of one partition."""

    may_lead: Callable[[int], bool]
    min_isr: int = 1
    elr: bool = True
    """Whether the cluster keeps eligible leader replicas (feature `eligible.leader.replicas.version`)."""
    unclean: bool = False
    """Whether the topic's `unclean.leader.election.enable` lets a partition lose records rather than wait."""


def without(
    state: PartitionState, broker_id: int, rules: Rules, *, lost: bool, emptied: bool = False
) -> PartitionState:
    """The partition without this broker: it was fenced, is about to stop, or comes back having `lost` records (all of
    them if `emptied`)."""
    assert lost or not emptied
    if emptied:
        known = tuple(replica for replica in state.last_known_elr if replica != broker_id)
        successor = _successor(state, known, broker_id, rules)
        if successor is not None:
            state = elect(replace(state, last_known_elr=known), (successor,), rules, gone=(broker_id,), restarted=True)
        else:
            state = without(state, broker_id, rules, lost=True)
        return replace(state, last_known_elr=tuple(one for one in state.last_known_elr if one != broker_id))
    isr = tuple(replica for replica in state.isr if replica != broker_id)
    gone = (broker_id,) if lost else ()
    elr = tuple(replica for replica in state.elr if replica not in gone) if rules.elr else ()
    if not isr and broker_id in state.isr and not (lost and elr):
        # The last member stays, as the only one known to have everything, unless eligible replicas are known to have it
        # too.
        isr = state.isr
        if any(rules.may_lead(replica) for replica in elr) and not rules.may_lead(broker_id):
            isr = ()
    if lost and not isr and not elr and broker_id in state.elr:
        # The last eligible replica, after the last ISR member has lost records too.
        gone = ()
    return elect(state, isr, rules, gone=gone, restarted=lost and state.leader == broker_id)


def _successor(state: PartitionState, known: tuple[int, ...], broker_id: int, rules: Rules) -> int | None:
    """The replica that replaces an emptied broker that was the last of ISR and ELR; None if there is none."""
    others = [replica for replica in (*state.isr, *state.elr) if replica != broker_id]
    if others or broker_id not in (*state.isr, *state.elr):
        return None
    candidates = [replica for replica in state.replicas if replica in known]
    return min(candidates, key=lambda replica: not rules.may_lead(replica), default=None)


def elect(
    state: PartitionState,
    isr: Sequence[int],
    rules: Rules,
    *,
    gone: tuple[int, ...] = (),
    election: Election = Election.ANY,
    restarted: bool = False,
    shrunk: bool = False,
) -> PartitionState:
    """The partition with this ISR and the resulting leader; its reassignment completed if possible.

    `gone`: replicas that lost records. `restarted`: the leader is a new incarnation, so it may lead again only in a new
    epoch. `shrunk`: the partition has fewer replicas than before.
    """
    held = len(state.replicas)
    state, isr = completed(state, tuple(isr), rules.min_isr)
    shrunk = shrunk or len(state.replicas) < held
    elr, last_known = _eligible(state, isr, rules, gone)
    leader, unclean = _leader(state, isr, elr, rules, election, restarted=restarted)
    recovery = state.leader_recovery_state
    if leader != NO_LEADER and leader not in isr:
        # Elected from the ELR or unclean: the other replicas must follow it before they count as in sync.
        isr = (leader,)
        elr, last_known = _eligible(state, isr, rules, gone)
        if unclean:
            elr = ()
            recovery = LeaderRecoveryState.RECOVERING
    led_anew = leader != state.leader or (restarted and leader != NO_LEADER) or shrunk
    return replace(
        state,
        isr=isr,
        elr=elr,
        last_known_elr=last_known,
        leader=leader,
        leader_epoch=state.leader_epoch + led_anew,
        leader_recovery_state=recovery,
    )


def _eligible(
    state: PartitionState, isr: tuple[int, ...], rules: Rules, gone: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(ELR, replicas that were in it before they lost records)."""
    if not rules.elr or len(isr) >= min(rules.min_isr, len(state.replicas)):
        return (), ()
    had = dict.fromkeys((*state.elr, *state.isr))
    elr = tuple(r for r in state.replicas if r in had and r not in isr and r not in gone)
    known = dict.fromkeys((*state.last_known_elr, *had))
    last_known = tuple(r for r in state.replicas if r in known and r not in isr and r not in elr)
    return elr, last_known


def _leader(
    state: PartitionState,
    isr: tuple[int, ...],
    elr: tuple[int, ...],
    rules: Rules,
    election: Election,
    *,
    restarted: bool,
) -> tuple[int, bool]:
    """The leader, and whether its election was unclean."""
    eligible = [r for r in state.replicas if r in isr and rules.may_lead(r)]
    eligible += [r for r in state.replicas if r in elr and rules.may_lead(r)]
    preferred = state.replicas[0]
    if election is Election.PREFERRED and preferred in eligible:
        return preferred, False
    if state.leader in eligible and not (restarted and state.leader not in isr):
        return state.leader, False
    if eligible:
        return eligible[0], False
    if rules.unclean or election is Election.UNCLEAN:
        present = [r for r in state.replicas if rules.may_lead(r)]
        # The last eligible leaders have the most records; after them, the replica order decides.
        present.sort(key=lambda replica: replica not in state.last_known_elr)
        if present:
            return present[0], True
    return NO_LEADER, False


def change_record(
    topic_id: bytes, partition: int, before: PartitionState, after: PartitionState
) -> PartitionChangeRecord | None:
    """The record that turns `before` into `after`; None if they are equal."""
    record = PartitionChangeRecord(topic_id=topic_id, partition_id=partition)
    if after.replicas != before.replicas:
        record.replicas = list(after.replicas)
    if after.directories != before.directories:
        record.directories = list(after.directories)
    if after.adding != before.adding:
        record.adding_replicas = list(after.adding)
    if after.removing != before.removing:
        record.removing_replicas = list(after.removing)
    if after.isr != before.isr:
        record.isr = list(after.isr)
    if after.leader != before.leader or after.leader_epoch != before.leader_epoch:
        record.leader = after.leader
    if after.elr != before.elr:
        record.eligible_leader_replicas = list(after.elr)
    if after.last_known_elr != before.last_known_elr:
        record.last_known_elr = list(after.last_known_elr)
    if after.leader_recovery_state != before.leader_recovery_state:
        record.leader_recovery_state = after.leader_recovery_state
    unchanged = PartitionChangeRecord(topic_id=topic_id, partition_id=partition)
    return None if record == unchanged else record
