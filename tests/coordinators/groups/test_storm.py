"""A thousand members that join, leave, die and come back as they like: the group settles, and no partition ever has
two owners in one generation, whatever crashes in between."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordinators.groups.harness import Groups, Joined, Synced, subscription
from penstock.coordinators.groups.classic_group import ClassicGroup, ClassicState
from penstock.wire.errors import ErrorCode

TICK_MS = 500
HEARTBEAT_MS = 3_000
SESSION_MS = 10_000
REBALANCE_MS = 15_000
SETTLING_MAX_MS = 120_000

PROTOCOLS = (("range", subscription("t")),)


class Member:
    """A client that does what the protocol asks of it."""

    def __init__(self, storm: Storm, instance: str | None) -> None:
        self.storm = storm
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.owned: list[int] | None = None
        self.answer: Joined | None = None
        self.next_heartbeat_ms = 0.0

    def step(self) -> None:
        """Take what came, and send what is due."""
        groups = self.storm.groups
        answer = self.answer
        if answer is None:
            if self.owned is None:
                self._join()
            elif groups.now_ms >= self.next_heartbeat_ms:
                self.next_heartbeat_ms = groups.now_ms + HEARTBEAT_MS
                error = groups.heartbeat(self.member_id, self.generation, instance=self.instance)
                if error:
                    self._lose(error)
        elif not answer.waits:
            self.answer = None
            if isinstance(answer, Synced):
                self._synced(answer)
            else:
                self._joined(answer)

    def lose_connection(self) -> None:
        """The coordinator crashed: the answer will not come."""
        self.answer = None

    def _join(self) -> None:
        self.answer = self.storm.groups.join(
            self.member_id,
            instance=self.instance,
            protocols=PROTOCOLS,
            session_ms=SESSION_MS,
            rebalance_ms=REBALANCE_MS,
        )

    def _joined(self, answer: Joined) -> None:
        response = answer.response
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        elif response.error_code:
            self._lose(response.error_code)
        else:
            self.member_id = response.member_id
            self.generation = response.generation_id
            assignments: dict[str, bytes] = {}
            if response.leader == self.member_id and not response.skip_assignment:
                ids = [member.member_id for member in response.members]
                assert self.member_id in ids
                shares: dict[str, list[int]] = {member_id: [] for member_id in ids}
                for partition in range(self.storm.partitions):
                    shares[ids[partition % len(ids)]].append(partition)
                assignments = {m: ",".join(map(str, share)).encode() for m, share in shares.items()}
            self.answer = self.storm.groups.sync(self.member_id, self.generation, assignments, instance=self.instance)

    def _synced(self, answer: Synced) -> None:
        response = answer.response
        if response.error_code:
            self._lose(response.error_code)
            return
        self.owned = [int(number) for number in response.assignment.decode().split(",") if number]
        self.next_heartbeat_ms = self.storm.groups.now_ms + HEARTBEAT_MS
        for partition in self.owned:
            # A static member that came back owns, under its new id, what it had.
            name = self.instance or self.member_id
            owner = self.storm.owners.setdefault((self.generation, partition), name)
            assert owner == name, f"partition {partition} has two owners in generation {self.generation}"

    def _lose(self, error: int) -> None:
        self.owned = None
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.ILLEGAL_GENERATION):
            self.member_id = ""
        else:
            assert error == ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode(error).name


class Storm:
    """Members, and what happens to them."""

    def __init__(self, seed: int, size: int, partitions: int) -> None:
        self.rng = Random(seed)
        self.size = size
        self.partitions = partitions
        self.groups = Groups(group_initial_rebalance_delay_ms=self.rng.choice([0, 1_000, 3_000]))
        self.members: list[Member] = []
        self.owners: dict[tuple[int, int], str] = {}
        self.instances = 0

    def tick(self) -> None:
        for member in self.members:
            member.step()
        self.groups.advance(TICK_MS)

    def rage(self, ticks: int) -> None:
        for _ in range(ticks):
            for _ in range(self.rng.randint(0, self.size // 4)):
                if len(self.members) < self.size:
                    self.members.append(self._born())
            for _ in range(self.rng.randint(0, max(1, len(self.members) // 10))):
                if self.members:
                    self._befall(self.rng.randrange(len(self.members)))
            if self.rng.random() < 0.05:
                self.crash()
            self.tick()

    def crash(self) -> None:
        self.groups = self.groups.reloaded()
        for member in self.members:
            member.lose_connection()

    def settle(self) -> None:
        deadline_ms = self.groups.now_ms + SETTLING_MAX_MS
        while not self.settled():
            self.tick()
            assert self.groups.now_ms < deadline_ms, f"{self.groups.group.state} after {SETTLING_MAX_MS} ms of peace"

    def settled(self) -> bool:
        group = self.groups.shard.groups.get("g")
        return (
            isinstance(group, ClassicGroup)
            and group.state is ClassicState.STABLE
            and len(group.members) == len(self.members)
            and all(m.owned is not None and m.generation == group.generation for m in self.members)
        )

    def _born(self) -> Member:
        instance = None
        if self.rng.random() < 0.2:
            self.instances += 1
            instance = f"instance-{self.instances}"
        return Member(self, instance)

    def _befall(self, position: int) -> None:
        member = self.members[position]
        match self.rng.choice(["die", "leave", "restart", "think"]):
            case "die":
                self._remove(position)
            case "leave":
                if member.member_id:
                    self.groups.leave((member.member_id, member.instance))
                self._remove(position)
            case "restart":
                self.members[position] = Member(self, member.instance)
            case _:
                member.owned = None  # it wants to join again, for reasons of its own

    def _remove(self, position: int) -> None:
        self.members[position] = self.members[-1]
        self.members.pop()


def check_the_end(storm: Storm) -> None:
    """Exactly the partitions there are, each with one of those who are still there."""
    owned = sorted(partition for member in storm.members for partition in member.owned or [])
    assert owned == list(range(storm.partitions))
    loaded = storm.groups.reloaded()
    assert loaded.shard.durable_state() == storm.groups.shard.durable_state()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(2))
def test_a_storm_of_a_thousand_members_settles(seed: int) -> None:
    storm = Storm(seed, 1_000, 1_000)
    storm.rage(200)
    assert len(storm.members) > 300
    storm.settle()
    check_the_end(storm)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32), size=st.integers(1, 40), ticks=st.integers(1, 80))
def test_storms_of_all_sizes_settle(seed: int, size: int, ticks: int) -> None:
    storm = Storm(seed, size, 50)
    storm.rage(ticks)
    if not storm.members:
        storm.members.append(Member(storm, None))
    storm.settle()
    check_the_end(storm)


def test_a_death_in_a_group_of_a_thousand_is_over_within_a_session_and_a_round() -> None:
    storm = Storm(1, 1_000, 1_000)
    storm.members = [Member(storm, None) for _ in range(1_000)]
    storm.settle()
    generation = storm.groups.group.generation
    storm.members.pop()
    before_ms = storm.groups.now_ms
    storm.tick()
    storm.settle()
    assert storm.groups.group.generation == generation + 1
    assert storm.groups.now_ms - before_ms < SESSION_MS + HEARTBEAT_MS + 5 * TICK_MS
