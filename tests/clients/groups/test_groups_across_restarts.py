"""The broker is restarted and killed under groups of every client; they go on where they were."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from clients.groups.brokers import broker_under_test
from clients.groups.group import Group, Kind, Load
from support.server_process import admin_client

PARTITIONS = 4
TOPIC = "orders"
KINDS = (
    Kind("librdkafka", "cooperative-sticky"),
    Kind("librdkafka", "uniform", protocol="consumer"),
    Kind("kafka_python", "range"),
    Kind("aiokafka", "range"),
    Kind("kafkajs", "its own"),
)
PROGRESS_RECORDS = 60


@pytest.mark.parametrize("how", [pytest.param("stopped", marks=pytest.mark.compat), "killed"])
def test_groups_go_on_after_the_broker_was(how: str, tmp_path: Path) -> None:
    kinds = [kind for kind in KINDS if not kind.unavailable()]
    with broker_under_test() as server, ExitStack() as ending:
        admin = admin_client(server.bootstrap)
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(60)
        load = ending.enter_context(Load(server.bootstrap, TOPIC, PARTITIONS, per_second=100))
        groups = [ending.enter_context(Group(server.bootstrap, TOPIC, tmp_path, name=str(kind))) for kind in kinds]
        for group, kind in zip(groups, kinds, strict=True):
            group.start("a", kind)
            group.start("b", kind)
        for group in groups:
            group.ledger.wait_shared("ab", PARTITIONS)
            group.ledger.wait_progress(1)
        if how == "killed":
            server.kill()
        else:
            server.stop()
        server.start()
        goal = len(load.acknowledged) + PROGRESS_RECORDS
        for group in groups:
            group.ledger.wait_progress(goal)
        acknowledged = load.stop()
        for group in groups:
            group.ledger.wait_processed(acknowledged)
            group.stop_all()
            group.ledger.verify(acknowledged)
            assert group.ledger.committed == load.ends(), group.name
