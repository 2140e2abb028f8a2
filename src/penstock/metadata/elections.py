"""What becomes of a partition when replicas come and go: its ISR, its eligible leaders, its leader.

The rules are Kafka's (KIP-966 for the eligible leader replicas, ELR):

- The leader comes from the ISR; if none of it can lead, from the ELR; if unclean elections are allowed or asked for,
  from whoever is there, and what only others have is lost.
- While the ISR is smaller than the minimum, the high watermark stands still. So whoever leaves such an ISR still has
  everything that was acknowledged, and may lead later: it enters the ELR. Once the ISR is large enough again, the ELR
  is emptied.
- A replica that lost what it may have acknowledged (a restart without proof of a clean stop) leaves the ISR and the
  ELR at once. Only where it is the very last of both it stays: nobody else has more, and a new leader epoch tells
  readers to look again.
- A replica that comes back with an empty disk has nothing, so it does not even stay as the last. Its place goes to one
  that was eligible before and restarted uncleanly (`last_known_elr`): that one has at least what reached its disk.
- A partition that is being reassigned is where it shall be as soon as the ISR allows it (`reassignments`). Who leaves
  the replicas must notice, so that is a new leader epoch, also where the leader stays.
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
    """What is asked for; the first two are the numbers of ElectLeaders."""

    PREFERRED = 0
    UNCLEAN = 1
    ANY = 2
    """A leader if the present one cannot lead any longer."""


class Rules(msgspec.Struct, frozen=True):
    """What an election of one partition goes by."""

    may_lead: Callable[[int], bool]
    min_isr: int = 1
    elr: bool = True
    """Whether the cluster keeps eligible leader replicas (feature `eligible.leader.replicas.version`)."""
    unclean: bool = False
    """Whether the topic's `unclean.leader.election.enable` lets a partition lose records rather than wait."""


def without(
    state: PartitionState, broker_id: int, rules: Rules, *, lost: bool, emptied: bool = False
) -> PartitionState:
    """The broker leaves: it is fenced, or about to stop; or it `lost` records, all of them if `emptied`, and comes
    back."""
    assert lost or not emptied
    if emptied:
        known = tuple(replica for replica in state.last_known_elr if replica != broker_id)
        heir = _heir(state, known, broker_id, rules)
        if heir is not None:
            state = elect(replace(state, last_known_elr=known), (heir,), rules, gone=(broker_id,), restarted=True)
        else:
            state = without(state, broker_id, rules, lost=True)
        return replace(state, last_known_elr=tuple(one for one in state.last_known_elr if one != broker_id))
    isr = tuple(replica for replica in state.isr if replica != broker_id)
    gone = (broker_id,) if lost else ()
    elr = tuple(replica for replica in state.elr if replica not in gone) if rules.elr else ()
    if not isr and broker_id in state.isr and not (lost and elr):
        # The last member stays: it is the only one known to have everything. Unless others are known to have it too.
        isr = state.isr
        if any(rules.may_lead(replica) for replica in elr) and not rules.may_lead(broker_id):
            isr = ()
    if lost and not isr and not elr and broker_id in state.elr:
        # The last of those that may lead, after the last of the ISR has lost records, too.
        gone = ()
    return elect(state, isr, rules, gone=gone, restarted=lost and state.leader == broker_id)


def _heir(state: PartitionState, known: tuple[int, ...], broker_id: int, rules: Rules) -> int | None:
    """Who takes the place of a broker that has nothing any more, if that was the last of the ISR and the ELR."""
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
    """The partition with this ISR and the leader that follows from it; its reassignment completed if that is possible.

    `gone`: replicas that lost records. `restarted`: the leader is a new incarnation, so if it leads again it does so
    in a new epoch. `shrunk`: it has fewer replicas than it had.
    """
    held = len(state.replicas)
    state, isr = completed(state, tuple(isr), rules.min_isr)
    shrunk = shrunk or len(state.replicas) < held
    elr, last_known = _eligible(state, isr, rules, gone)
    leader, unclean = _leader(state, isr, elr, rules, election, restarted=restarted)
    recovery = state.leader_recovery_state
    if leader != NO_LEADER and leader not in isr:
        # From the ELR, or unclean: the others follow it before they count again.
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
    """(ELR, those that were in it before they lost records)."""
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
        # Whoever was eligible last has most; else the order of the replicas decides.
        present.sort(key=lambda replica: replica not in state.last_known_elr)
        if present:
            return present[0], True
    return NO_LEADER, False


def change_record(
    topic_id: bytes, partition: int, before: PartitionState, after: PartitionState
) -> PartitionChangeRecord | None:
    """The record that makes `after` of `before`; None if nothing differs."""
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
