"""What the metrics tell of groups."""

from __future__ import annotations

import pytest

from broker.group_session import QUICK, ClassicMember, ConsumerMember, commit, find, ready, settled, stable_group
from broker.session import Session, simulated
from broker.test_metrics import scrape
from penstock.broker.observability import group_gauges, lag_gauges
from penstock.wire.messages.delete_groups import DeleteGroupsRequest

MANAGER = "kafka_coordinator_group_groupmetadatamanager"
METRICS = "kafka_server_group_coordinator_metrics"


@simulated(QUICK)
async def test_groups_are_counted_by_protocol_and_state(s: Session) -> None:
    await s.create("t", 2)
    assert (await scrape(s))[f"{MANAGER}_numgroups"] == 0
    await find(s)
    (member,) = await stable_group(s, 1)
    joining = await ClassicMember.connect(s, "other")
    joining.protocols = {"range": b""}
    assert (await joining.join()).error_code == 0
    await commit(s.client, "simple", {("t", 0): (1, ""), ("t", 1): (2, "")})
    consumer = await ConsumerMember.connect(s, "c", ["t"])
    await settled([consumer], 2)
    found = await scrape(s)
    assert found[f"{MANAGER}_numgroups"] == 4
    assert found[f"{MANAGER}_numoffsets"] == 2
    assert found[f"{MANAGER}_numgroupsstable"] == 1
    assert found[f"{MANAGER}_numgroupscompletingrebalance"] == 1
    assert found[f"{MANAGER}_numgroupsempty"] == 1
    assert found[f'{METRICS}_group_count{{protocol="classic"}}'] == 3
    assert found[f'{METRICS}_group_count{{protocol="consumer"}}'] == 1
    assert found[f'{METRICS}_consumer_group_count{{state="stable"}}'] == 1
    assert found[f'{METRICS}_num_partitions{{state="active"}}'] == 2
    assert found[f'{METRICS}_num_partitions{{state="failed"}}'] == 0
    assert await member.heartbeat() == 0


@simulated(QUICK)
async def test_commits_deletions_and_rebalances_are_counted(s: Session) -> None:
    await s.create("t", 2)
    await find(s)
    (member,) = await stable_group(s, 1)
    await member.commit({("t", 0): (1, ""), ("t", 1): (2, "")})
    await commit(s.client, "simple", {("t", 0): (1, "")})
    await s.call(DeleteGroupsRequest(groups_names=["simple"]))
    consumer = await ConsumerMember.connect(s, "c", ["t"])
    await settled([consumer], 2)
    found = await scrape(s)
    assert found[f"{METRICS}_offset_commit_count_total"] == 3
    assert found[f"{METRICS}_offset_deletion_count_total"] == 1
    assert found[f"{METRICS}_group_completed_rebalance_count_total"] == 1
    assert found[f"{METRICS}_consumer_group_rebalance_count_total"] == 1
    assert 4 <= found["penstock_coordinator_batches_total"] < found["penstock_coordinator_records_total"]


@simulated(QUICK)
async def test_requests_that_wait_and_loads_are_told(s: Session) -> None:
    await find(s)
    await stable_group(s, 1)
    joining = await ClassicMember.connect(s)
    joining.id = (await joining.send_join()).member_id
    joining.send_join()
    await s.runtime.sleep(10)
    assert (await scrape(s))["penstock_coordinator_waiting_requests"] == 1
    await s.restarted()
    await ready(s)
    found = await scrape(s)
    assert found["penstock_coordinator_waiting_requests"] == 0
    assert found[f"{METRICS}_partition_load_time_max"] >= found[f"{METRICS}_partition_load_time_avg"] > 0
    assert found[f"{MANAGER}_numgroups"] == 1


@simulated(QUICK)
async def test_above_a_limit_only_totals_are_told(s: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_gauges, "GROUPS_COUNTED_MAX", 1)
    await find(s)
    await stable_group(s, 1)
    await stable_group(s, 1, "h")
    found = await scrape(s)
    assert found[f"{MANAGER}_numgroups"] >= 2
    assert f"{MANAGER}_numoffsets" not in found


@simulated(QUICK)
async def test_lag_is_told_by_group_and_partition(s: Session) -> None:
    await s.create("t", 2)
    await find(s)
    await s.produce("t", *[b"x"] * 10)
    await commit(s.client, "behind", {("t", 0): (4, ""), ("t", 1): (0, "")})
    await commit(s.client, "done", {("t", 0): (10, "")})
    found = await scrape(s)
    assert found['kafka_topic_partition_current_offset{topic="t",partition="0"}'] == 10
    assert found['kafka_consumergroup_current_offset{consumergroup="behind",topic="t",partition="0"}'] == 4
    assert found['kafka_consumergroup_lag{consumergroup="behind",topic="t",partition="0"}'] == 6
    assert found['kafka_consumergroup_lag{consumergroup="behind",topic="t",partition="1"}'] == 0
    assert found['kafka_consumergroup_lag_sum{consumergroup="behind"}'] == 6
    assert found['kafka_consumergroup_lag_sum{consumergroup="done"}'] == 0


@simulated(QUICK)
async def test_many_offsets_are_not_told_one_by_one(s: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag_gauges, "OFFSETS_TOLD_MAX", 1)
    await s.create("t", 2)
    await find(s)
    await commit(s.client, "g", {("t", 0): (1, ""), ("t", 1): (2, "")})
    assert not any("consumergroup" in name or "current_offset" in name for name in await scrape(s))
