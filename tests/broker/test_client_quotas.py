"""Client quotas on a broker: throttled clients are told, and held; others are not affected."""

from __future__ import annotations

from broker.quota_exchanges import described_quotas, entry, set_quota
from broker.session import BROKER, Session, batch, fetch_request, produce_request, records_of, simulated
from penstock.sim.broker import CLIENT_ID, ProtocolClient
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.wire.messages.metadata import MetadataRequest

ME = {"client-id": CLIENT_ID}


async def named(s: Session, client_id: str) -> ProtocolClient:
    client = await s.connect()
    client.client_id = client_id
    return client


def held_ms(s: Session) -> float:
    return max(c.throttled_until_ms for c in s.node.served.service._connections.values()) - s.runtime.now_ms()


@simulated()
async def test_without_quotas_the_gate_knows_of_none(s: Session) -> None:
    gate = s.node.served.gate
    assert gate.quotas is None
    await set_quota(s, {"user": "ann"}, producer_byte_rate=1)
    assert gate.quotas is not None
    await set_quota(s, {"user": "ann"}, producer_byte_rate=None)
    assert gate.quotas is None
    await set_quota(s, {"ip": "10.0.0.1"}, connection_creation_rate=1)
    assert gate.quotas is None, "a quota of connections is none of requests"


@simulated()
async def test_quotas_survive_a_restart(s: Session) -> None:
    await set_quota(s, {"user": "ann", "client-id": None}, producer_byte_rate=5, request_percentage=0.25)
    before = await described_quotas(s)
    await s.restarted()
    assert await described_quotas(s) == before
    assert s.node.served.gate.quotas is not None


@simulated()
async def test_a_producer_over_its_quota_is_told_and_its_next_request_waits(s: Session) -> None:
    await s.create("t")
    await set_quota(s, ME, producer_byte_rate=1_000)
    records = batch(b"x" * 14_500)
    began_ms = s.runtime.now_ms()
    first = await s.client.call(produce_request("t", records), 12)
    told_ms = first.throttle_time_ms
    assert 4_000 < told_ms < 6_000
    assert s.runtime.now_ms() - began_ms < 100, "the answer itself is not delayed (KIP-219)"
    await s.client.call(produce_request("t", batch(b"y")), 12)
    waited_ms = s.runtime.now_ms() - began_ms
    assert told_ms - 100 < waited_ms < told_ms + 1_000


@simulated()
async def test_requests_that_have_arrived_already_wait_as_well(s: Session) -> None:
    await s.create("t")
    await set_quota(s, ME, producer_byte_rate=1_000)
    began_ms = s.runtime.now_ms()
    answers = [s.client.send(produce_request("t", batch(b"x" * 14_500)), 12)]
    answers += [s.client.send(ApiVersionsRequest(), 0) for _ in range(20)]
    other = await s.connect()
    assert (await answers[0]).throttle_time_ms > 4_000
    other.client_id = "another"
    await other.call(ApiVersionsRequest(), 0)
    assert s.runtime.now_ms() - began_ms < 200, "others are served"
    await answers[1]
    assert s.runtime.now_ms() - began_ms > 4_000
    for answer in answers[2:]:
        await answer


@simulated()
async def test_a_producer_that_waits_for_no_answer_is_held_too(s: Session) -> None:
    await s.create("t")
    await set_quota(s, ME, producer_byte_rate=1_000)
    s.client.post(produce_request("t", batch(b"x" * 14_500), acks=0), 12)
    began_ms = s.runtime.now_ms()
    await s.client.call(ApiVersionsRequest(), 0)
    assert s.runtime.now_ms() - began_ms > 4_000


@simulated({"connections.max.idle.ms": "15000"})
async def test_a_held_connection_is_not_idle(s: Session) -> None:
    await s.create("t")
    await set_quota(s, ME, producer_byte_rate=100)
    await s.client.call(produce_request("t", batch(b"x" * 9_000)), 12)
    assert held_ms(s) > 60_000
    began_ms = s.runtime.now_ms()
    await s.client.call(ApiVersionsRequest(), 0)
    assert s.runtime.now_ms() - began_ms > 60_000


@simulated()
async def test_a_consumer_over_its_quota_gets_nothing_now_and_everything_later(s: Session) -> None:
    await s.create("t")
    for number in range(30):
        await s.produce("t", bytes([number]) * 1_000)
    await set_quota(s, ME, consumer_byte_rate=1_000)
    offset, empty, began_ms = 0, 0, s.runtime.now_ms()
    while offset < 30:
        answer = await s.client.call(fetch_request("t", offset, partition_max_bytes=4_000), 12)
        if answer.throttle_time_ms:
            assert answer.responses == []
            empty += 1
            continue
        data = answer.responses[0].partitions[0]
        assert data.records
        assert data.error_code == 0
        found = [record.offset for record in records_of(data)]
        assert found[0] == offset
        offset = found[-1] + 1
    assert empty > 0
    assert 15_000 < s.runtime.now_ms() - began_ms < 40_000, "30 KB at 1 KB/s, after a burst of 10 KB"


@simulated()
async def test_one_fetch_returns_at_most_what_the_quota_allows_at_once(s: Session) -> None:
    await s.create("t")
    for _ in range(30):
        await s.produce("t", b"x" * 1_000)
    await set_quota(s, ME, consumer_byte_rate=500)
    answer = await s.client.call(fetch_request("t", 0, max_bytes=1 << 20, min_bytes=1 << 20, max_wait_ms=60_000), 12)
    assert answer.throttle_time_ms == 0
    assert 3_000 < len(answer.responses[0].partitions[0].records) <= 5_000


@simulated()
async def test_a_throttled_fetch_does_not_lose_or_open_a_session(s: Session) -> None:
    await s.create("t")
    for _ in range(12):
        await s.produce("t", b"x" * 1_000)
    await set_quota(s, ME, consumer_byte_rate=500)
    opened = fetch_request("t", 0, partition_max_bytes=8_000, session_epoch=0)
    first = await s.client.call(opened, 12)
    assert (first.throttle_time_ms, first.session_id != 0) == (0, True)
    sessions = s.node.served._fetch.sessions
    again = fetch_request("t", 4, partition_max_bytes=8_000, session_epoch=1, session_id=first.session_id)
    second = await s.client.call(again, 12)
    assert second.throttle_time_ms > 0
    assert (second.session_id, second.responses) == (first.session_id, [])
    other = await s.connect()
    throttled = await other.call(fetch_request("t", 0, partition_max_bytes=8_000, session_epoch=0), 12)
    assert (throttled.session_id, throttled.responses, throttled.throttle_time_ms > 0) == (0, [], True)
    assert len(sessions) == 1


@simulated()
async def test_time_on_the_loop_is_a_quota_too(s: Session) -> None:
    await set_quota(s, ME, request_percentage=1)
    quotas = s.node.served.quotas.quotas
    answer = await s.call(MetadataRequest(topics=None), 12)
    assert answer.throttle_time_ms == 0
    (meter,) = quotas.meters()
    meter.rate.record(50, s.runtime.now_ms())  # half a second of work; virtual time does not pass while it works
    answer = await s.call(MetadataRequest(topics=None), 12)
    assert answer.throttle_time_ms == 1_000, "at most one window at a time, as in Kafka"
    began_ms = s.runtime.now_ms()
    await s.call(ApiVersionsRequest(), 0)
    assert s.runtime.now_ms() - began_ms > 900


def creation(*names: str, partitions: int = 1) -> CreateTopicsRequest:
    topics = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
    return CreateTopicsRequest(topics=topics)


@simulated()
async def test_partitions_are_created_and_deleted_within_the_mutation_quota(s: Session) -> None:
    await set_quota(s, ME, controller_mutation_rate=1)
    answer = await s.call(creation("a", "b", partitions=10))
    assert [topic.error_code for topic in answer.topics] == [0, 0], "a bucket of eleven, and what exceeds it on credit"
    assert answer.throttle_time_ms == 0
    answer = await s.call(creation("c"))
    assert answer.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert 8_000 < answer.throttle_time_ms <= 9_000
    began_ms = s.runtime.now_ms()
    more = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="a", count=30, assignments=None)])
    assert (await s.call(more)).results[0].error_code == 0
    assert s.runtime.now_ms() - began_ms > 8_000, "it waited as told"
    gone = DeleteTopicsRequest(topics=[DeleteTopicState(name="a"), DeleteTopicState(name="b")])
    assert [topic.error_code for topic in (await s.call(gone)).responses] == [ErrorCode.THROTTLING_QUOTA_EXCEEDED] * 2
    other = await named(s, "another")
    assert (await other.call(creation("d"), 7)).topics[0].error_code == 0


@simulated()
async def test_an_old_client_is_served_beyond_the_mutation_quota_and_throttled(s: Session) -> None:
    await set_quota(s, ME, controller_mutation_rate=1)
    answer = await s.call(creation("a", "b", partitions=10), 5)
    assert [topic.error_code for topic in answer.topics] == [0, 0]
    assert 8_000 < answer.throttle_time_ms <= 9_000


@simulated({"quota.producer.default": "1000"})
async def test_a_property_limits_each_client_id_without_a_quota_of_its_own(s: Session) -> None:
    await s.create("t")
    await set_quota(s, {"client-id": "vip"}, producer_byte_rate=10**9)
    big = produce_request("t", batch(b"x" * 14_500))
    assert (await (await named(s, "vip")).call(big, 12)).throttle_time_ms == 0
    assert (await (await named(s, "one")).call(big, 12)).throttle_time_ms > 4_000
    assert (await (await named(s, "two")).call(produce_request("t", batch(b"x")), 12)).throttle_time_ms == 0
    assert (await s.alter("", BROKER, quota_producer_default="1000000")).error_code == 0
    assert (await (await named(s, "three")).call(big, 12)).throttle_time_ms == 0


@simulated()
async def test_a_bad_entity_does_not_keep_a_good_one_from_its_quota(s: Session) -> None:
    entries = [entry({"user": ""}, producer_byte_rate=1), entry({"user": "ann"}, producer_byte_rate=2)]
    answer = await s.call(AlterClientQuotasRequest(entries=entries))
    assert [one.error_code for one in answer.entries] == [ErrorCode.INVALID_REQUEST, 0]
    assert await described_quotas(s) == {(("user", "ann"),): {"producer_byte_rate": 2.0}}


@simulated()
async def test_metrics_name_those_who_were_throttled(s: Session) -> None:
    await s.create("t")
    await set_quota(s, {"client-id": None}, producer_byte_rate=1_000)
    await (await named(s, "greedy")).call(produce_request("t", batch(b"x" * 14_500)), 12)
    samples = {
        (sample.name, dict(sample.labels).get("client_id")): sample.value for sample in s.node.served.metrics.samples()
    }
    assert samples["penstock_throttled_connections", None] == 1
    assert samples["penstock_quota_throttled_total", "greedy"] == 1
    assert 4 < samples["penstock_quota_throttle_seconds_total", "greedy"] < 6
    assert samples["penstock_quota_limit", "greedy"] == 1_000
    assert 1_000 < samples["kafka_server_produce_byte_rate", "greedy"] < 2_000
