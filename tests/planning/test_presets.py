"""Presets are documents' configurations, and take a side in each trade-off that they name."""

from __future__ import annotations

import pytest

from penstock.planning.catalogue import PlanError
from penstock.planning.presets import PRESETS, Preset, preset
from penstock.planning.tradeoffs import TRADE_OFFS


def settings(one: Preset) -> dict[str, str]:
    return {setting.name: setting.value for setting in (*one.topic, *one.producer)}


@pytest.mark.parametrize(
    ("name", "copies", "in_sync", "acks", "unclean"),
    [
        ("maximum-durability", 3, "2", "all", "false"),
        ("balanced", 3, "2", "1", "false"),
        ("high-throughput", 2, "1", "1", "true"),
    ],
)
def test_the_configurations_of_document_003(name: str, copies: int, in_sync: str, acks: str, unclean: str) -> None:
    one = preset(name)
    found = settings(one)
    assert one.replication_factor == copies
    assert (found["min.insync.replicas"], found["acks"]) == (in_sync, acks)
    assert found["unclean.leader.election.enable"] == unclean


@pytest.mark.parametrize(
    ("name", "codec", "days"), [("logs", "gzip", 1), ("events", "snappy", 3), ("metrics", "lz4", 7)]
)
def test_the_kinds_of_data_of_document_000(name: str, codec: str, days: int) -> None:
    found = settings(preset(name))
    assert (found["compression.type"], int(found["retention.ms"])) == (codec, days * 86_400_000)


@pytest.mark.parametrize("one", PRESETS, ids=lambda one: one.name)
def test_a_preset_can_work_and_explains_itself(one: Preset) -> None:
    found = settings(one)
    assert int(found["min.insync.replicas"]) <= one.replication_factor
    assert (found.get("enable.idempotence") == "true") == (found["acks"] == "all"), "idempotence needs acks=all"
    assert all(setting.why for setting in (*one.topic, *one.producer, *one.consumer))
    assert set(one.sides) <= {(row.between, row.priority) for row in TRADE_OFFS}


def test_an_unknown_preset_is_told_the_nearest() -> None:
    with pytest.raises(PlanError, match="did you mean low-latency"):
        preset("low-latncy")
