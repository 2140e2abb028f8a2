"""A topic gets another number of partitions while it is written to and read."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]

from penstock.pipeline.repartition import Phase, Repartition, RepartitionError, RepartitionOrder, RepartitionPlan
from penstock.pipeline.repartition.driving import Progress, Wishes
from penstock.pipeline.repartition.ledger import read_plan
from penstock.pipeline.repartition.plan import TakenOver
from pipeline.repartition.load import REFUSALS, Load, account, consume, read_topic
from support.either import EITHER, server_of
from support.records import create_topic
from support.server_process import ServerProcess
from support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A timeout in the middle of a call to Spark would leave the session that all tests share out of step.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module", params=EITHER)
def server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    with server_of(request.param, {"group.initial.rebalance.delay.ms": "0"}) as running:
        yield running


@pytest.fixture
def topic() -> str:
    return f"t{uuid.uuid4().hex[:10]}"


class Crash(Exception):
    """Ends a run at a step, as the death of its process would."""


def crash_at(step: str, times: int = 1) -> Wishes:
    """Wishes whose run ends the nth time that it comes to this step."""
    left = [times]

    def watch(name: str) -> None:
        if name == step:
            left[0] -= 1
            if left[0] == 0:
                raise Crash(step)

    return Wishes(watch=watch, lease_s=60, may_switch=lambda plan: step != "chunk")


def own_settings(bootstrap: str, topic: str) -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.describe_configs([resource])[resource].result(30)
    return {name: entry.value for name, entry in found.items() if entry.source == 1}


def error_of_produce(bootstrap: str, topic: str) -> int | None:
    errors: list[int | None] = []
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    producer.produce(topic, b"x", on_delivery=lambda error, _: errors.append(error.code() if error else None))
    assert producer.flush(30) == 0
    return errors[0]


def test_nothing_is_lost_and_the_order_of_keys_is_kept_across_the_switch(
    spark: SparkSession, server: ServerProcess, topic: str
) -> None:
    broker = server.bootstrap
    create_topic(broker, topic, 2, config={"retention.ms": "86400000", "message.timestamp.type": "LogAppendTime"})
    load = Load(broker, topic).start()
    wait_until(lambda: load.total >= 2_000)
    read_before = consume(broker, topic, f"{topic}-slow", 700)
    seen: list[Progress] = []
    live = Consumer({"bootstrap.servers": broker, "group.id": f"{topic}-live", "auto.offset.reset": "earliest"})
    live.subscribe([topic])
    assert live.poll(30) is not None
    live.commit(asynchronous=False)

    def show(progress: Progress) -> None:
        seen.append(progress)
        if progress.waiting_for == (f"{topic}-live",):
            live.close()  # its consumers stop when the operator is told of them; it commits what it had read

    wishes = Wishes(
        announce=lambda plan: load.switch_to(plan.target), show=show, lease_s=60,
        may_switch=lambda plan: plan.written >= 2_000,
    )  # fmt: skip
    plan = Repartition(spark, broker, RepartitionOrder(topic, 5), wishes=wishes).run()
    assert plan.phase is Phase.DONE
    after = load.total
    wait_until(lambda: load.total >= after + 500)
    sent = load.stop()

    assert plan.target == f"{topic}.p5"
    account(read_topic(broker, plan.target), sent)
    assert len(read_topic(broker, topic)) == plan.written, "each record of the old topic was copied once"
    assert load.refused > 0, "the fence met the producer"
    assert plan.switched_ms - plan.fenced_ms < 30_000
    assert {Phase.COPYING, Phase.DRAINING, Phase.SWITCHED} <= {progress.phase for progress in seen}
    assert own_settings(broker, plan.target)["retention.ms"] == "86400000"
    assert own_settings(broker, plan.target)["message.timestamp.type"] == "LogAppendTime"
    assert error_of_produce(broker, topic) in REFUSALS
    assert set(plan.groups) == {f"{topic}-slow", f"{topic}-live"}

    slow = plan.groups[f"{topic}-slow"]
    rest = read_topic(broker, plan.target, dict(enumerate(slow.target)))
    read_keys = {(one.key, one.number) for one in read_before}
    rest_keys = {(one.key, one.number) for one in rest}
    everything = {(key, number) for key, count in sent.items() for number in range(count)}
    assert read_keys | rest_keys == everything, "the group skips nothing"
    assert len(read_keys & rest_keys) == slow.read_again
    first = consume(broker, plan.target, f"{topic}-slow", 1)[0]
    assert first.offset == slow.target[first.partition], "the group goes on at its position"
    with pytest.raises(RepartitionError, match="no way back"):
        Repartition(None, broker, RepartitionOrder(topic, 5)).abort()


STEPS = [
    ("saved preparing", 1), ("created", 1), ("chunk", 1), ("chunk", 2), ("caught up", 1), ("saved fencing", 1),
    ("fence raised", 1), ("drained", 1), ("saved switched", 1), ("translated", 1),
]  # fmt: skip


@pytest.mark.long
def test_a_run_that_crashed_at_any_step_is_resumed(spark: SparkSession, server: ServerProcess, topic: str) -> None:
    """One repartitioning whose driver dies at each step in turn; each run goes on where the last one ended."""
    broker = server.bootstrap
    create_topic(broker, topic, 3)
    load = Load(broker, topic).start()
    wait_until(lambda: load.total >= 1_200)
    consume(broker, topic, f"{topic}-group", 300)
    order = RepartitionOrder(topic, 2, target=f"{topic}-narrow")
    for step, times in STEPS:
        with pytest.raises(Crash):
            Repartition(spark, broker, order, wishes=crash_at(step, times)).run()
    plan = Repartition(spark, broker, order).run()
    assert plan.phase is Phase.DONE
    load.switch_to(plan.target)  # the run that crashed after the switch announced it
    sent = load.stop()
    account(read_topic(broker, plan.target), sent)
    assert read_plan({"bootstrap.servers": broker}, topic) == plan


def test_it_can_be_aborted_until_the_switch_and_begun_again(
    spark: SparkSession, server: ServerProcess, topic: str
) -> None:
    broker = server.bootstrap
    create_topic(broker, topic, 2, config={"max.message.bytes": "500000"})
    order = RepartitionOrder(topic, 4)
    with pytest.raises(Crash):
        Repartition(spark, broker, order, wishes=crash_at("drained")).run()
    assert error_of_produce(broker, topic) in REFUSALS
    with pytest.raises(RepartitionError, match="being repartitioned already"):
        Repartition(spark, broker, RepartitionOrder(topic, 6)).run()
    aborted = Repartition(None, broker, order).abort()
    assert aborted is not None
    assert aborted.phase is Phase.ABORTED
    assert error_of_produce(broker, topic) is None
    assert own_settings(broker, topic) == {"max.message.bytes": "500000"}
    assert order.target_name not in AdminClient({"bootstrap.servers": broker}).list_topics(timeout=30).topics
    assert Repartition(None, broker, order).abort() is None
    plan = Repartition(spark, broker, order).run()
    assert (plan.phase, plan.written) == (Phase.DONE, 1)


def test_a_run_that_was_taken_over_stops(spark: SparkSession, server: ServerProcess, topic: str) -> None:
    broker = server.bootstrap
    create_topic(broker, topic, 1)
    order = RepartitionOrder(topic, 2)
    following, failures = threading.Event(), list[BaseException]()

    def may_switch(plan: RepartitionPlan) -> bool:
        following.set()
        return False

    def first() -> None:
        try:
            Repartition(spark, broker, order, wishes=Wishes(may_switch=may_switch, lease_s=2)).run()
        except RepartitionError as error:
            failures.append(error)

    thread = threading.Thread(target=first, daemon=True)
    thread.start()
    assert following.wait(60)
    assert Repartition(spark, broker, order).run().phase is Phase.DONE
    thread.join(60)
    assert [type(error) for error in failures] == [TakenOver]


@pytest.mark.parametrize(
    ("partitions", "message"), [(1, "already has 1 partitions"), (9_999, "more than 5000 together")]
)
def test_what_cannot_be_done_is_refused_before_anything_changes(
    server: ServerProcess, topic: str, partitions: int, message: str
) -> None:
    broker = server.bootstrap
    create_topic(broker, topic, 1)
    with pytest.raises(RepartitionError, match=message):
        Repartition(None, broker, RepartitionOrder(topic, partitions)).run()
    assert read_plan({"bootstrap.servers": broker}, topic) is None


def test_a_fence_is_recognised_without_writing_anything(server: ServerProcess, topic: str) -> None:
    from penstock.client import ClientSettings, Cluster
    from penstock.pipeline.repartition import fence

    broker = server.bootstrap
    create_topic(broker, topic, 2)
    settings = fence.TopicSettings({"bootstrap.servers": broker})
    with Cluster(ClientSettings.from_properties({"bootstrap.servers": broker})) as cluster:
        with pytest.raises(RepartitionError, match="still takes records"):
            fence.await_fence(cluster, topic, 2, timeout_s=0)
        chosen = fence.choose_fence(settings, topic)
        fence.raise_fence(settings, topic, chosen)
        fence.await_fence(cluster, topic, 2)
        assert error_of_produce(broker, topic) in {KafkaError.POLICY_VIOLATION, KafkaError.MSG_SIZE_TOO_LARGE}
        fence.lower_fence(settings, topic, chosen)
        wait_until(lambda: error_of_produce(broker, topic) is None)
    watermarks = [ends(broker, topic, partition) for partition in (0, 1)]
    assert sum(watermarks) == 1, "the record after the fence, and no probe"


def ends(bootstrap: str, topic: str, partition: int) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "ends"})
    try:
        return consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)[1]
    finally:
        consumer.close()
