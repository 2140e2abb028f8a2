"""Incremental fetch sessions (KIP-227) as a client sees them."""

from __future__ import annotations

from typing import Any

import pytest

from broker.session import Session, batch, records_of, simulated
from penstock.broker import limits
from penstock.sim.broker import ProtocolClient
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic

NAMED, BY_ID = 12, 16
FULL = 0
WITHOUT = -1


class Fetcher:
    """Keeps a session as a consumer does."""

    def __init__(self, s: Session, version: int, ids: dict[str, bytes], client: ProtocolClient | None = None) -> None:
        self.s = s
        self.version = version
        self.ids = ids
        self.client = client or s.client
        self.session_id = 0
        self.epoch = FULL

    async def fetch(
        self, *parts: tuple[str, int, int], forget: list[tuple[str, int]] | None = None, **options: Any
    ) -> dict[tuple[str, int], Any]:
        """(topic, partition, offset) of what is new; returns the partitions that were answered."""
        answer = await self.ask(*parts, forget=forget, **options)
        assert answer.error_code == 0
        self.session_id = answer.session_id
        self.epoch += 1
        names = {known: name for name, known in self.ids.items()}
        return {
            (names.get(topic.topic_id, topic.topic), part.partition_index): part
            for topic in answer.responses
            for part in topic.partitions
        }

    async def ask(
        self, *parts: tuple[str, int, int], forget: list[tuple[str, int]] | None = None, **options: Any
    ) -> Any:
        request = FetchRequest(
            session_id=options.pop("session_id", self.session_id),
            session_epoch=options.pop("epoch", self.epoch),
            topics=[
                FetchTopic(
                    **self.named(topic),
                    partitions=[FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1 << 20)],
                )
                for topic, number, offset in parts
            ],
            forgotten_topics_data=[
                ForgottenTopic(**self.named(topic), partitions=[number]) for topic, number in forget or []
            ],
            **options,
        )
        return await self.client.call(request, self.version)

    def named(self, topic: str) -> dict[str, Any]:
        return {"topic_id": self.ids[topic]} if self.version >= 13 else {"topic": topic}


@pytest.mark.parametrize("version", [7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18])
@simulated()
async def test_only_what_is_new_is_told(s: Session, version: int) -> None:
    fetcher = Fetcher(s, version, {"t": await s.create("t", partitions=3), "u": await s.create("u")})
    everything = await fetcher.fetch(("t", 0, 0), ("t", 1, 0), ("u", 0, 0))
    assert list(everything) == [("t", 0), ("t", 1), ("u", 0)]
    assert fetcher.session_id > 0
    session = fetcher.session_id

    assert await fetcher.fetch() == {}
    await s.produce("t", b"x", partition=1)
    news = await fetcher.fetch()
    assert list(news) == [("t", 1)]
    assert [record.value for record in records_of(news["t", 1])] == [b"x"]
    assert list(await fetcher.fetch()) == [("t", 1)], "until the client moves its offset"
    assert await fetcher.fetch(("t", 1, 1)) == {}

    assert list(await fetcher.fetch(("t", 2, 0))) == [("t", 2)], "a partition that joins is told"
    await s.produce("u", b"y")
    assert await fetcher.fetch(forget=[("u", 0)]) == {}, "what is forgotten is not told"
    assert list(await fetcher.fetch(("u", 0, 0))) == [("u", 0)], "and may come back"
    assert fetcher.session_id == session


@pytest.mark.parametrize("version", [NAMED, BY_ID])
@simulated()
async def test_a_session_waits_for_news_of_any_of_its_partitions(s: Session, version: int) -> None:
    reader = await s.connect()
    fetcher = Fetcher(s, version, {"t": await s.create("t", partitions=50)}, reader)
    await fetcher.fetch(*(("t", number, 0) for number in range(50)))
    task = s.runtime.spawn(fetcher.fetch(max_wait_ms=10_000, min_bytes=1), "fetch")
    await s.runtime.sleep(500)
    assert not task.done()
    await s.produce("t", b"x", partition=37)
    news = await task
    assert list(news) == [("t", 37)]


@simulated()
async def test_errors_come_and_go(s: Session) -> None:
    ids = {"t": await s.create("t"), "later": b"unknown"}
    fetcher = Fetcher(s, NAMED, ids)
    first = await fetcher.fetch(("t", 0, 0), ("later", 0, 0))
    assert first["later", 0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert list(await fetcher.fetch()) == [("later", 0)], "an error is repeated"
    await s.create("later")
    assert (await fetcher.fetch())["later", 0].error_code == 0
    assert await fetcher.fetch() == {}
    await s.delete("t")
    assert (await fetcher.fetch())["t", 0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@simulated()
async def test_a_topic_of_the_same_name_is_another_topic_to_a_session_by_id(s: Session) -> None:
    ids = {"t": await s.create("t")}
    by_name, by_id = Fetcher(s, NAMED, ids), Fetcher(s, BY_ID, ids)
    for fetcher in (by_name, by_id):
        await fetcher.fetch(("t", 0, 0))
    await s.delete("t")
    await s.create("t")
    await s.produce("t", b"new")
    assert len(records_of((await by_name.fetch())["t", 0])) == 1
    assert (await by_id.fetch())["t", 0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


@simulated()
async def test_partitions_take_turns_when_not_all_fit(s: Session) -> None:
    """As KIP-227 has it: one that was answered goes to the end, so that a busy partition starves no other."""
    fetcher = Fetcher(s, NAMED, {"t": await s.create("t", partitions=3)})
    for number in range(3):
        for _ in range(4):
            await s.produce("t", bytes(100), partition=number)
    size = len(batch(bytes(100)))
    offsets = dict.fromkeys(range(3), 0)
    answered: list[int] = []
    changed = [("t", number, 0) for number in range(3)]
    for _ in range(12):
        news = await fetcher.fetch(*changed, max_bytes=size)
        got = [(part, records) for (_, part), data in news.items() if (records := records_of(data))]
        ((part, records),) = got
        assert [record.offset for record in records] == [offsets[part]]
        offsets[part] += 1
        answered.append(part)
        changed = [("t", part, offsets[part])]
    assert sorted(answered[1:4]) == sorted(answered[4:7]) == sorted(answered[7:10]) == [0, 1, 2]


# ---- how a session ends


@simulated()
async def test_an_unknown_session_is_refused(s: Session) -> None:
    fetcher = Fetcher(s, NAMED, {"t": await s.create("t")})
    answer = await fetcher.ask(("t", 0, 0), session_id=12345, epoch=1)
    assert (answer.error_code, answer.session_id, answer.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0, [])


@simulated()
async def test_a_wrong_epoch_is_refused_and_the_session_goes_on(s: Session) -> None:
    fetcher = Fetcher(s, NAMED, {"t": await s.create("t")})
    await fetcher.fetch(("t", 0, 0))
    for epoch in (2, 100):
        assert (await fetcher.ask(epoch=epoch)).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    await s.produce("t", b"x")
    assert list(await fetcher.fetch()) == [("t", 0)]
    assert (await fetcher.ask(epoch=1)).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


@simulated()
async def test_names_and_ids_do_not_mix_in_one_session(s: Session) -> None:
    ids = {"t": await s.create("t")}
    for version, other in ((NAMED, BY_ID), (BY_ID, NAMED)):
        fetcher = Fetcher(s, version, ids)
        await fetcher.fetch(("t", 0, 0))
        fetcher.version = other
        assert (await fetcher.ask()).error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


@simulated()
async def test_a_session_is_closed_by_its_client(s: Session) -> None:
    fetcher = Fetcher(s, NAMED, {"t": await s.create("t")})
    await fetcher.fetch(("t", 0, 0))
    sessions = s.node.served._fetch.sessions
    assert len(sessions) == 1
    answer = await fetcher.ask(("t", 0, 0), epoch=WITHOUT)
    assert (answer.error_code, answer.session_id) == (0, 0)
    assert len(answer.responses) == 1, "the last request is answered in full"
    assert len(sessions) == 0
    fetcher.epoch = FULL
    await fetcher.fetch(("t", 0, 0))
    replaced = fetcher.session_id
    fetcher.epoch = FULL
    await fetcher.fetch(("t", 0, 0))
    assert fetcher.session_id != replaced
    assert len(sessions) == 1, "a new session replaces the old one"


@simulated()
async def test_a_fetch_without_topics_or_session_opens_none(s: Session) -> None:
    answer = await s.call(FetchRequest(session_epoch=FULL), NAMED)
    assert (answer.error_code, answer.session_id, answer.responses) == (0, 0, [])


# ---- slots


@simulated({"max.incremental.fetch.session.cache.slots": "3"})
async def test_sessions_are_given_while_slots_are_free_and_idle_ones_make_room(s: Session) -> None:
    ids = {"t": await s.create("t", partitions=2)}
    fetchers = [Fetcher(s, NAMED, ids) for _ in range(5)]
    for fetcher in fetchers[:3]:
        await fetcher.fetch(("t", 0, 0))
        assert fetcher.session_id > 0
    await fetchers[3].fetch(("t", 0, 0))
    assert fetchers[3].session_id == 0, "served without a session"
    await s.runtime.sleep(130_000)
    for fetcher in fetchers[:2]:
        await fetcher.fetch()
    await fetchers[4].fetch(("t", 0, 0))
    assert fetchers[4].session_id > 0, "the one that was idle for two minutes makes room"
    assert (await fetchers[2].ask()).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert await fetchers[0].fetch() == {}


@simulated({"max.incremental.fetch.session.cache.slots": "2"})
async def test_a_larger_session_takes_the_place_of_an_old_small_one(s: Session) -> None:
    ids = {"t": await s.create("t", partitions=2)}
    small, other, large = (Fetcher(s, NAMED, ids) for _ in range(3))
    await small.fetch(("t", 0, 0))
    await other.fetch(("t", 0, 0), ("t", 1, 0))
    for _ in range(130):
        await s.runtime.sleep(1000)
        await small.fetch()
        await other.fetch()
    await large.fetch(("t", 0, 0), ("t", 1, 0))
    assert large.session_id > 0
    assert (await small.ask()).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert await other.fetch() == {}


@simulated({"max.incremental.fetch.session.cache.slots": "0"})
async def test_no_slots_means_no_sessions(s: Session) -> None:
    fetcher = Fetcher(s, NAMED, {"t": await s.create("t")})
    await s.produce("t", b"x")
    news = await fetcher.fetch(("t", 0, 0))
    assert fetcher.session_id == 0
    assert len(records_of(news["t", 0])) == 1


@simulated()
async def test_sessions_remember_only_so_much(s: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request opens a session, and the broker keeps it: else a few of them would fill the memory."""
    monkeypatch.setattr(limits, "FETCH_SESSION_PARTITIONS_MAX", 10)
    ids = {"t": await s.create("t", partitions=20)}
    first, second, third = (Fetcher(s, NAMED, ids) for _ in range(3))
    await first.fetch(*(("t", number, 0) for number in range(6)))
    await second.fetch(*(("t", number, 0) for number in range(6)))
    assert (first.session_id > 0, second.session_id) == (True, 0), "the second is served without one"
    await third.fetch(*(("t", number, 0) for number in range(4)))
    assert third.session_id > 0
    assert (await third.ask(("t", 10, 0))).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    sessions = s.node.served._fetch.sessions
    assert (len(sessions), sessions.partition_count) == (1, 6)
    await first.fetch(("t", 7, 0), forget=[("t", 0), ("t", 1)])
    assert sessions.partition_count == 5
