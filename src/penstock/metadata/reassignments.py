"""Moving a partition to other replicas (KIP-455): what its replicas are before, during and after.

While a partition is reassigned it has all replicas at once, those that it shall have and those that it had:

    replicas   the target, then those that leave      [4, 2, 3, 1]
    adding     of the target, those that are new      [4]
    removing   those that leave                       [1]

So nothing is taken away before what replaces it is there. The new replicas copy the log and join the ISR, which their
leader proposes as ever; with the change of the ISR that makes the target sufficient the controller completes the
reassignment in the same record: `removing` leave replicas and ISR, both lists are emptied, and if the leader was one of
those that leave another one is elected. To cancel is to take away what was added.

A target is sufficient as in Kafka 4.3: all that were added are in sync, and where the partition ends with fewer
replicas than it had, all of the target are. Beyond that, `min.insync.replicas` of the target are: to take the others
away must not leave acknowledged records on fewer replicas than was promised. (Kafka would do it.)

A second target for a partition that is still on its way replaces the first. What the first one added and the second
does not want leaves again; what both want stays one that is added, so that cancelling leads back to the replicas from
before the first. (Kafka 4.3 keeps the old lists where the new ones would be empty, and a partition that is sent back
to where it came from then never completes.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from penstock.metadata.image import PartitionState


class Reverted(NamedTuple):
    """A partition whose reassignment is cancelled. Unclean: all that are in sync are replicas that it added."""

    state: PartitionState
    unclean: bool


def is_reassigning(state: PartitionState) -> bool:
    return bool(state.adding or state.removing)


def target_of(state: PartitionState) -> tuple[int, ...]:
    """The replicas that it has, once it is where it shall be."""
    return _without(state.replicas, state.removing)


def originals_of(state: PartitionState) -> tuple[int, ...]:
    """The replicas that cancelling leads back to."""
    return _without(state.replicas, state.adding)


def begun(state: PartitionState, target: Sequence[int], directory_of: Callable[[int], bytes]) -> PartitionState:
    """On its way to the target. `directory_of(broker)` is where a new replica goes."""
    originals = originals_of(state)
    removing = tuple(sorted(_without(state.replicas, target)))
    return _placed(
        state,
        (*target, *removing),
        adding=tuple(sorted(_without(target, originals))),
        removing=removing,
        directory_of=directory_of,
    )


def completed(
    state: PartitionState, isr: tuple[int, ...], min_isr: int = 1
) -> tuple[PartitionState, tuple[int, ...]]:
    """Its replicas and ISR if it would have this ISR: those of the target, if that is sufficient."""
    if not is_reassigning(state):
        return state, isr
    target = target_of(state)
    in_sync = _without(isr, state.removing)
    needed = target if len(state.adding) < len(state.removing) else state.adding
    if len(in_sync) < max(1, min(min_isr, len(target))):
        return state, isr
    if any(replica not in in_sync for replica in (*needed, *state.adding)):
        return state, isr
    return _placed(state, target), in_sync


def reverted(state: PartitionState) -> Reverted:
    """Back to the replicas from before."""
    originals = originals_of(state)
    assert originals, f"a reassignment that adds all replicas: {state}"
    in_sync = _without(state.isr, state.adding)
    # Nobody of those from before has all: the first of them begins with what it has.
    return Reverted(replace(_placed(state, originals), isr=in_sync or originals[:1]), not in_sync)


def _without(replicas: Sequence[int], others: Sequence[int]) -> tuple[int, ...]:
    return tuple(replica for replica in replicas if replica not in others)


def _placed(
    state: PartitionState,
    replicas: tuple[int, ...],
    *,
    adding: tuple[int, ...] = (),
    removing: tuple[int, ...] = (),
    directory_of: Callable[[int], bytes] | None = None,
) -> PartitionState:
    known = dict(zip(state.replicas, state.directories, strict=False))
    directories = []
    for replica in replicas:
        directory = known.get(replica)
        if directory is None and directory_of is not None:
            directory = directory_of(replica)
        if directory is not None:
            directories.append(directory)
    return replace(state, replicas=replicas, adding=adding, removing=removing, directories=tuple(directories))
