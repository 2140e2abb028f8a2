"""Moving a partition to other replicas (KIP-455): its replicas before, during and after.

While a partition is reassigned it has the new and the old replicas together:

        replicas   the target, then the removed ones      [4, 2, 3, 1]
        adding     the new ones of the target             [4]
        removing   the removed ones                       [1]

So no replica is removed before its replacement is ready. The new replicas copy the log and join the ISR, which the
leader proposes as usual. When an ISR change makes the target sufficient, the controller completes the reassignment in
the same record: the `removing` replicas leave the replicas and the ISR, both lists are emptied, and a new leader is
elected if the old one is removed. Cancelling removes the added replicas.

A target is sufficient as in Kafka 4.3: all added replicas are in sync, and if the partition ends with fewer replicas
than it had, the whole target is. In addition, `min.insync.replicas` of the target must be in sync: removing the others
must not leave acknowledged records on fewer replicas than promised. (Kafka allows that.)

A second target for a partition that is still being reassigned replaces the first. Replicas that only the first one
added leave again. Replicas in both stay marked as added, so that cancelling restores the replicas from before the
first. (Kafka 4.3 keeps the old lists where the new ones would be empty, and a partition that is sent back to its
original replicas then never completes.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from penstock.metadata.image import PartitionState


class Reverted(NamedTuple):
    """A partition after cancelling its reassignment. `unclean`: only added replicas are in sync."""

    state: PartitionState
    unclean: bool


def is_reassigning(state: PartitionState) -> bool:
    return bool(state.adding or state.removing)


def target_of(state: PartitionState) -> tuple[int, ...]:
    """The replicas after any reassignment in progress."""
    return _without(state.replicas, state.removing)


def originals_of(state: PartitionState) -> tuple[int, ...]:
    """The replicas that cancelling restores."""
    return _without(state.replicas, state.adding)


def begun(state: PartitionState, target: Sequence[int], directory_of: Callable[[int], bytes]) -> PartitionState:
    """The partition on its way to the target. `directory_of(broker)` is the directory of a new replica."""
    originals = originals_of(state)
    removing = tuple(sorted(_without(state.replicas, target)))
    return _placed(
        state,
        (*target, *removing),
        adding=tuple(sorted(_without(target, originals))),
        removing=removing,
        directory_of=directory_of,
    )


def completed(state: PartitionState, isr: tuple[int, ...], min_isr: int = 1) -> tuple[PartitionState, tuple[int, ...]]:
    """Replicas and ISR if the ISR became this one: those of the target, if it is sufficient."""
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
    """The partition with its original replicas."""
    originals = originals_of(state)
    assert originals, f"a reassignment must keep an original replica: {state}"
    in_sync = _without(state.isr, state.adding)
    # No original replica is in sync: the first of them starts with the records it has.
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
