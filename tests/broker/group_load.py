"""Members of groups that go on whatever befalls the broker, until they have committed what they were told to."""

from __future__ import annotations

from collections.abc import Awaitable
from random import Random
from typing import Any

from broker.group_session import ClassicMember, ConsumerMember, commit, committed
from broker.load import connect, within
from broker.session import Session
from penstock.sim import SimRuntime
from penstock.sim.broker import ProtocolClient, SimBroker
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest

PAUSE_MS = 20


class GroupLoad:
    """One member, classic or not. `acknowledged` is the last offset that it was told is committed."""

    def __init__(
        self, runtime: SimRuntime, node: SimBroker, topic: str, group: str, rng: Random, commits: int, *, classic: bool
    ) -> None:
        self._runtime = runtime
        self._node = node
        self._topic = topic
        self.group = group
        self._rng = rng
        self._commits = commits
        self._classic = classic
        self.acknowledged = -1
        self.last_attempt = -1
        self.rejoined = 0

    @property
    def is_done(self) -> bool:
        return self.acknowledged >= self._commits

    async def run(self) -> None:
        while not self.is_done:
            client = await connect(self._runtime, self._node)
            try:
                s = Session(self._runtime, self._node, client)
                await self._soon(s, client.call(FindCoordinatorRequest(coordinator_keys=[self.group]), 4))
                await (self._as_classic(s) if self._classic else self._as_consumer(s))
            except ConnectionError:
                pass
            finally:
                client.close()
            self.rejoined += 1
            await self._runtime.sleep(PAUSE_MS)

    async def _as_classic(self, s: Session) -> None:
        member = ClassicMember(s, s.client, self.group, session_timeout_ms=6000, rebalance_timeout_ms=500)
        if (await self._soon(s, member.join())).error_code:
            return
        assignments = dict.fromkeys(member.members, b"share")
        if (await self._soon(s, member.sync(assignments if member.leads else None))).error_code:
            return
        while not self.is_done:
            if await self._soon(s, member.heartbeat()) != ErrorCode.NONE:
                return
            if not await self._commit(s, member.id, member.generation):
                return
        await self._soon(s, member.leave())

    async def _as_consumer(self, s: Session) -> None:
        member = ConsumerMember(s, s.client, self.group, [self._topic], f"m-{self._rng.random()}")
        while not self.is_done:
            if (await self._soon(s, member.heartbeat())).error_code:
                return
            if not await self._commit(s, member.id, member.epoch):
                return
        await self._soon(s, member.leave())

    async def _commit(self, s: Session, member_id: str, generation: int) -> bool:
        self.last_attempt += 1
        offsets = {(self._topic, 0): (self.last_attempt, f"by {member_id}")}
        told = await self._soon(s, commit(s.client, self.group, offsets, member_id, generation))
        if set(told.values()) != {ErrorCode.NONE}:
            return False
        self.acknowledged = self.last_attempt
        await self._runtime.sleep(self._rng.random() * 2 * PAUSE_MS)
        return True

    async def _soon(self, s: Session, answer: Awaitable[Any]) -> Any:
        return await within(self._runtime, s.client, answer)

    async def check(self, client: ProtocolClient) -> None:
        """What was acknowledged last is there, or what was attempted after it."""
        found = await committed(client, self.group)
        offset = found[(self._topic, 0)][0]
        assert self.acknowledged <= offset <= self.last_attempt, (self.acknowledged, offset, self.last_attempt)
