"""Whatever is written, cut and synced in whatever order: a power loss spares what was synced and not touched since."""

from __future__ import annotations

from random import Random
from typing import Literal

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.sim.inode import Inode, SyncSnapshot

SIZE_MAX = 12_000

Write = tuple[Literal["write"], int, int]
Truncate = tuple[Literal["truncate"], int]
Other = tuple[Literal["begin", "finish", "write back", "fail"]]

writes = st.tuples(st.just("write"), st.integers(0, SIZE_MAX), st.integers(1, 3_000))
truncates = st.tuples(st.just("truncate"), st.integers(0, SIZE_MAX))
others = st.tuples(st.sampled_from(["begin", "finish", "write back"]))


class Model:
    """For each byte, its value at the last completed sync, as long as nothing has touched it since."""

    def __init__(self) -> None:
        self.content = bytearray()
        self.changes: list[tuple[int, int]] = []
        self.begun: tuple[bytes, int] | None = None
        self.synced = b""

    def certain(self) -> dict[int, int]:
        known = dict(enumerate(self.synced))
        for start, end in self.changes:
            for position in range(start, min(end, len(self.synced))):
                known.pop(position, None)
        return known


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(writes, truncates, others), max_size=25), st.integers(0, 1 << 32))
def test_a_power_loss_spares_what_was_synced_and_not_touched_since(
    steps: list[Write | Truncate | Other], seed: int
) -> None:
    rng = Random(seed)
    inode, model = Inode(1), Model()
    snapshot: SyncSnapshot | None = None
    for number, step in enumerate(steps):
        match step:
            case ("write", position, size):
                data = bytes([number % 255 + 1]) * size
                inode.write(data, position)
                model.content.extend(bytes(max(0, position - len(model.content))))
                model.content[position : position + size] = data
                model.changes.append((position, position + size))
            case ("truncate", size):
                inode.truncate(size)
                model.changes.append((size, 1 << 30))
                del model.content[size:]
                model.content.extend(bytes(size - len(model.content)))
            case ("begin",):
                snapshot = inode.begin_sync()
                model.begun = (bytes(model.content), len(model.changes))
            case ("finish",) if snapshot is not None and model.begun is not None:
                inode.finish_sync(snapshot)
                model.synced, covered = model.begun
                model.changes = model.changes[covered:]
                snapshot = model.begun = None
            case ("write back",):
                inode.write_back(rng)
        assert inode.data == model.content

    inode.lose_power(rng)
    assert inode.data == inode.durable
    assert inode.is_clean
    for position, value in model.certain().items():
        assert inode.data[position] == value, position


@settings(max_examples=50, deadline=None)
@given(st.lists(writes, max_size=10), st.integers(0, 1 << 32))
def test_what_survives_is_made_of_bytes_that_were_written(steps: list[Write], seed: int) -> None:
    inode = Inode(1)
    values: list[set[int]] = []
    for number, (_, position, size) in enumerate(steps):
        inode.write(bytes([number + 1]) * size, position)
        while len(values) < position + size:
            values.append({0})
        for index in range(position, position + size):
            values[index].add(number + 1)
    inode.lose_power(Random(seed))
    assert len(inode.data) <= len(values)
    for position, value in enumerate(inode.data):
        assert value in values[position]
