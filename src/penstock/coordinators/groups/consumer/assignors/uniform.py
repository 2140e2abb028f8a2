"""The `uniform` assignor: the same number of partitions for each member, with as few moves as possible.

If all members subscribe to the same topics (nearly always), the sizes are known beforehand: `total // n` each, and one
more for some. Partitions beyond a member's size are taken from it, and free partitions are dealt out round-robin, which
spreads every topic over the members.

If subscriptions differ, free partitions go to the least loaded subscriber, topics with the fewest subscribers first;
then partitions are moved from the most to the least loaded subscriber of the same topic until no single move improves
the balance. Every move reduces the sum of squares of the loads, so this terminates.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush

from penstock.coordinators.groups.consumer.assignors.spec import NO_PARTITIONS, Assignment, GroupSpec, MemberSpec


def assign_uniform(spec: GroupSpec) -> dict[str, Assignment]:
    if not spec.members:
        return {}
    if spec.homogeneous:
        return _assign_homogeneous(spec)
    return _HeterogeneousAssignment(spec).run()


# -- equal subscriptions ---------------------------------------------------------------------------------------------


def _assign_homogeneous(spec: GroupSpec) -> dict[str, Assignment]:
    members = spec.members
    counts = spec.partition_counts
    topics = members[0].topics
    taken = {topic_id: bytearray(counts[topic_id]) for topic_id in topics}
    total = sum(counts[topic_id] for topic_id in topics)
    size_min, extras = divmod(total, len(members))

    assignments: dict[str, Assignment] = {}
    needy: deque[tuple[str, dict[bytes, list[int]], int]] = deque()
    content: list[tuple[MemberSpec, Assignment, int]] = []
    edited: dict[str, dict[bytes, list[int]]] = {}
    for member in members:
        kept, size = _keep(member.current, taken)
        if size > size_min and extras:
            extras -= 1
            size_allowed = size_min + 1
        else:
            size_allowed = size_min
        if size > size_allowed:
            edited[member.member_id] = _give_up(kept, size - size_allowed, taken, len(edited))
            assignments[member.member_id] = NO_PARTITIONS
        else:
            content.append((member, kept, size))
    # The remaining larger sizes go to members that do not have a larger share already, in order.
    for member, kept, size in content:
        need = size_min - size
        if extras and need >= 0:
            extras -= 1
            need += 1
        if need > 0:
            lists = edited[member.member_id] = {topic_id: list(partitions) for topic_id, partitions in kept.items()}
            needy.append((member.member_id, lists, need))
            assignments[member.member_id] = NO_PARTITIONS
        else:
            assignments[member.member_id] = kept

    _deal(taken, needy)
    for member_id, lists in edited.items():
        assignments[member_id] = {topic_id: tuple(sorted(held)) for topic_id, held in lists.items() if held}
    return assignments


def _keep(current: Assignment, taken: dict[bytes, bytearray]) -> tuple[Assignment, int]:
    """The part of an assignment that may stay, marked as taken, and its size. The same object if all of it stays."""
    size = 0
    intact = True
    kept: dict[bytes, tuple[int, ...]] = {}
    for topic_id, partitions in current.items():
        flags = taken.get(topic_id)
        if flags is None:
            intact = False
            continue
        count = len(flags)
        held = [partition for partition in partitions if partition < count and not flags[partition]]
        for partition in held:
            flags[partition] = 1
        size += len(held)
        if len(held) == len(partitions):
            kept[topic_id] = partitions
        else:
            intact = False
            if held:
                kept[topic_id] = tuple(held)
    return (current if intact else kept), size


def _give_up(kept: Assignment, surplus: int, taken: dict[bytes, bytearray], turn: int) -> dict[bytes, list[int]]:
    """Take partitions off a member, each from the topic it has most of, and mark them as free.

    Ties are broken differently for every `turn`; otherwise all members would give up partitions of the same topic.
    """
    lists = {topic_id: list(partitions) for topic_id, partitions in kept.items()}
    count = len(lists)
    heap = [(-len(held), (order + turn) % count, topic_id) for order, (topic_id, held) in enumerate(lists.items())]
    heapify(heap)
    for _ in range(surplus):
        size, order, topic_id = heappop(heap)
        taken[topic_id][lists[topic_id].pop()] = 0
        if size < -1:
            heappush(heap, (size + 1, order, topic_id))
    return lists


def _deal(taken: dict[bytes, bytearray], needy: deque[tuple[str, dict[bytes, list[int]], int]]) -> None:
    """Deal out free partitions round-robin."""
    for topic_id, flags in taken.items():
        partition = flags.find(0)
        while partition >= 0:
            member_id, lists, need = needy.popleft()
            lists.setdefault(topic_id, []).append(partition)
            if need > 1:
                needy.append((member_id, lists, need - 1))
            partition = flags.find(0, partition + 1)
    assert not needy, "the sizes must add up to the number of partitions"


# -- different subscriptions -----------------------------------------------------------------------------------------


class _HeterogeneousAssignment:
    """One run over members that subscribe to different topics. Members are numbered by their place in the spec."""

    def __init__(self, spec: GroupSpec) -> None:
        self.spec = spec
        self.loads = [0] * len(spec.members)
        # Topic → member → its partitions; the previous ones come first, so that new ones are moved first.
        self.held: dict[bytes, dict[int, list[int]]] = {topic_id: {} for topic_id in spec.partition_counts}
        # Members that subscribe to the same topics form a class; its heap knows the least loaded one. Entries whose
        # load is outdated are dropped when they come up.
        self.heaps: list[list[tuple[int, int]]] = []
        self.class_of: list[int] = []
        self.classes_of_topic: dict[bytes, list[int]] = {topic_id: [] for topic_id in spec.partition_counts}
        # The least loaded member of every class that subscribes to the current topic.
        self.candidates: list[tuple[int, int]] = []

    def run(self) -> dict[str, Assignment]:
        self._classify()
        free = self._keep()
        for heap in self.heaps:
            heapify(heap)
        self._assign(free)
        while self._balance():
            pass
        return self._result()

    def _classify(self) -> None:
        numbers: dict[tuple[bytes, ...], int] = {}
        for member in self.spec.members:
            number = numbers.get(member.topics)
            if number is None:
                number = numbers[member.topics] = len(numbers)
                self.heaps.append([])
                for topic_id in member.topics:
                    self.classes_of_topic[topic_id].append(number)
            self.class_of.append(number)

    def _keep(self) -> dict[bytes, list[int]]:
        """Members keep previous partitions they still subscribe to. Returns the free partitions."""
        taken = {topic_id: bytearray(count) for topic_id, count in self.spec.partition_counts.items()}
        wanted: dict[int, dict[bytes, None]] = {}
        for index, member in enumerate(self.spec.members):
            number = self.class_of[index]
            topics = wanted.get(number)
            if topics is None:
                topics = wanted[number] = dict.fromkeys(member.topics)
            load = 0
            for topic_id, partitions in member.current.items():
                if topic_id not in topics:
                    continue
                flags = taken[topic_id]
                held = []
                for partition in partitions:
                    if partition < len(flags) and not flags[partition]:
                        flags[partition] = 1
                        held.append(partition)
                if held:
                    self.held[topic_id][index] = held
                    load += len(held)
            self.loads[index] = load
            self.heaps[number].append((load, index))
        free = {}
        for topic_id, flags in taken.items():
            free[topic_id] = [partition for partition, flag in enumerate(flags) if not flag]
        return free

    def _assign(self, free: dict[bytes, list[int]]) -> None:
        """Give free partitions to the least loaded; topics with few subscribers first, as they have less choice."""
        sizes = [0] * len(self.heaps)
        for number in self.class_of:
            sizes[number] += 1
        rarest_first = sorted(
            (topic_id for topic_id, partitions in free.items() if partitions),
            key=lambda topic_id: sum(sizes[number] for number in self.classes_of_topic[topic_id]),
        )
        for topic_id in rarest_first:
            self._enter(topic_id)
            for partition in free[topic_id]:
                self._add(topic_id, self._least_loaded(), partition)

    def _balance(self) -> bool:
        """One round over all topics. True if a partition moved, so that another round may find more."""
        moved = False
        for topic_id, holders in self.held.items():
            self._enter(topic_id)
            heap = [(-self.loads[index], index) for index in holders]
            heapify(heap)
            while heap:
                load, giver = heappop(heap)
                if -load != self.loads[giver]:
                    continue  # There is a newer entry.
                taker = self._least_loaded()
                if self.loads[giver] - self.loads[taker] <= 1:
                    break
                held = holders[giver]
                partition = held.pop()
                self._change_load(giver, -1)
                if held:
                    heappush(heap, (-self.loads[giver], giver))
                else:
                    del holders[giver]
                self._add(topic_id, taker, partition)
                heappush(heap, (-self.loads[taker], taker))
                moved = True
        return moved

    def _enter(self, topic_id: bytes) -> None:
        """Select the topic whose partitions are moved until the next call."""
        self.candidates = [self._top(number) for number in self.classes_of_topic[topic_id]]
        heapify(self.candidates)

    def _top(self, number: int) -> tuple[int, int]:
        """The least loaded member of a class."""
        heap = self.heaps[number]
        while heap[0][0] != self.loads[heap[0][1]]:
            heappop(heap)
        return heap[0]

    def _least_loaded(self) -> int:
        candidates = self.candidates
        while candidates[0][0] != self.loads[candidates[0][1]]:
            heappop(candidates)
        return candidates[0][1]

    def _add(self, topic_id: bytes, index: int, partition: int) -> None:
        self.held[topic_id].setdefault(index, []).append(partition)
        self._change_load(index, 1)

    def _change_load(self, index: int, difference: int) -> None:
        load = self.loads[index] = self.loads[index] + difference
        number = self.class_of[index]
        heappush(self.heaps[number], (load, index))
        heappush(self.candidates, self._top(number))

    def _result(self) -> dict[str, Assignment]:
        gathered: list[dict[bytes, tuple[int, ...]]] = [{} for _ in self.spec.members]
        for topic_id, holders in self.held.items():
            for index, held in holders.items():
                gathered[index][topic_id] = tuple(sorted(held))
        return {
            member.member_id: member.current if assignment == member.current else assignment
            for member, assignment in zip(self.spec.members, gathered, strict=True)
        }
