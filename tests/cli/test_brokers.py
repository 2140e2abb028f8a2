"""`penstock brokers`, `penstock leaders` and `penstock cluster quorum`, on Penstock and on Apache Kafka."""

from __future__ import annotations

import json

from cli.running import Run
from penstock.cli import exit_codes


def test_brokers_are_listed_with_what_they_lead_and_store(on: Run, bootstrap: str, topic: str) -> None:
    assert on("topics", "create", topic, "--partitions", 3).code == exit_codes.OK
    on("produce", topic, stdin="a\nb\nc\n")
    (broker,) = json.loads(on("brokers", "list", "--json").output)
    assert broker["state"] == "in service"
    assert broker["leaders"] == broker["replicas"] >= 3
    assert broker["stored_bytes"] > 0
    assert f"{broker['host']}:{broker['port']}" == bootstrap
    assert on("brokers", "list").lines[1].split("\t")[:4] == [str(broker["id"]), bootstrap, "-", "in service"]
    shown = on("brokers", "describe", broker["id"])
    assert shown.code == exit_codes.OK
    assert f"leads {broker['leaders']:,}" in shown.output


def test_a_broker_that_is_not_there_is_told(on: Run) -> None:
    missing = on("brokers", "describe", 77)
    assert missing.code == exit_codes.NOT_FOUND
    assert "no broker 77" in missing.messages


def test_which_leaders_must_be_said(on: Run) -> None:
    assert on("leaders", "elect").code == exit_codes.USAGE
    assert on("leaders", "elect", "--topic", "no-such-topic").code == exit_codes.NOT_FOUND


def test_leaders_that_lead_already_need_no_election(on: Run, topic: str) -> None:
    on("topics", "create", topic, "--partitions", 2)
    elected = on("leaders", "elect", "--topic", f"{topic}:0,1")
    assert elected.code == exit_codes.OK, elected.messages
    assert elected.lines[1:] == [f"{topic}\t0\tleads already", f"{topic}\t1\tleads already"]
    refused = on("leaders", "elect", "--type", "unclean", "--topic", topic)
    assert (refused.code, "not a terminal" in refused.messages) == (exit_codes.USAGE, True)


def test_the_quorum_is_shown(on: Run) -> None:
    found = json.loads(on("cluster", "quorum", "--json").output)
    (voter,) = found["replicas"]
    assert (voter["role"], voter["id"], voter["lag"]) == ("leader", found["leader"], 0)
    assert found["high_watermark"] > 0
    assert on("cluster", "quorum").lines[0].startswith(f"leader {found['leader']}, epoch {found['epoch']}, ")
