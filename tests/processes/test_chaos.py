"""Faults on real broker processes under load, each with an account of every record.

Three brokers, replication factor 3, min.insync.replicas 2, idempotent producers with acks=all and a consuming group:
`penstock chaos` does it all, and its verdict is what is asserted. Network cuts and full disks need namespaces of Linux;
where those cannot be made the tests skip and say why.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from penstock.chaos import isolation
from penstock.runtime.exits import EXIT_STORAGE
from support.apache_kafka import ApacheKafka
from support.apache_kafka import available as kafka_available
from support.penstock import THIS_TREE, PenstockServer
from support.server_process import die_with_parent

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 280
EARLIER_RELEASE = "c576091"
"""The newest commit before `penstock chaos` that has clusters."""

SHORT_SEED = 15
"""Of a cut that is held for two seconds."""
pytestmark = pytest.mark.timeout(300)


def chaos(*arguments: str, environment: Mapping[str, str] | None = None) -> tuple[int, dict[str, Any]]:
    """Exit code and verdict."""
    command = [sys.executable, "-m", "penstock", "chaos", "--json", *arguments]
    done = subprocess.run(
        [*die_with_parent(), *command], capture_output=True, text=True, check=False, timeout=TIMEOUT_S,
        env={**os.environ, **(environment or {})},
    )  # fmt: skip
    assert done.stdout, f"exit code {done.returncode}: {done.stderr[-4000:]}"
    told = json.loads(done.stdout)
    told["log"] = done.stderr[-4000:]
    return done.returncode, told


def unharmed(*arguments: str) -> dict[str, Any]:
    """Runs it on three brokers; every fault was applied and every record is accounted for."""
    code, told = chaos("--brokers", "3", *arguments)
    assert told["violations"] == {}, told
    assert told["problems"] == [], told
    assert code == 0
    records = told["records"]
    assert records["acknowledged"] == records["sent"] == records["stored"] > 100
    assert records["pending"] == records["failed"] == 0
    assert records["read"] == 2 * records["stored"]
    assert records["commits"] > 0
    assert all(fault["whole_after_s"] is not None for fault in told["faults"]), told
    return told


def needs_namespaces() -> None:
    if reason := isolation.missing():
        pytest.skip(reason)


def names(told: Mapping[str, Any]) -> set[str]:
    return {fault["name"] for fault in told["faults"]}


# ---- kill -9


def test_a_killed_leader_and_a_killed_controller_cost_no_record() -> None:
    told = unharmed("--faults", "kill-leader,kill-controller", "--rounds", "1")
    assert names(told) == {"kill-leader", "kill-controller"}
    assert sorted(code for codes in told["exit_codes"].values() for code in codes) == [-9, -9]


@pytest.mark.long
@pytest.mark.parametrize("role", ["leader", "follower", "controller", "coordinator"])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_any_killed_node_costs_no_record(role: str, protocol: str) -> None:
    told = unharmed("--faults", f"kill-{role}", "--rounds", "3", "--group-protocol", protocol)
    assert len(told["faults"]) == 3


# ---- SIGSTOP, SIGTERM


@pytest.mark.long
@pytest.mark.parametrize("role", ["leader", "follower", "controller", "coordinator"])
def test_a_node_that_stands_still_and_goes_on_costs_no_record(role: str) -> None:
    unharmed("--faults", f"pause-{role}", "--rounds", "2")


@pytest.mark.long
def test_a_rolling_restart_costs_no_record() -> None:
    told = unharmed("--faults", "rolling-restart", "--rounds", "2")
    assert {code for codes in told["exit_codes"].values() for code in codes} == {0}


# ---- the network


@pytest.mark.long
@pytest.mark.parametrize(
    "fault",
    [
        "cut-leader",
        "cut-controller",
        "cut-leader-one-way",
        "cut-controller-one-way",
        "isolate-leader",
        "isolate-controller",
    ],
)
def test_a_cut_network_costs_no_record(fault: str) -> None:
    needs_namespaces()
    unharmed("--netns", "--faults", fault, "--rounds", "2")


def test_a_leader_whose_packets_are_lost_in_one_direction_costs_no_record() -> None:
    needs_namespaces()
    unharmed("--netns", "--faults", "cut-leader-one-way", "--rounds", "1", "--seed", str(SHORT_SEED))


# ---- the disk


@pytest.mark.long
@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_node_without_room_on_its_disk_stops_and_comes_back_when_there_is_room(role: str) -> None:
    needs_namespaces()
    told = unharmed("--netns", "--faults", f"full-disk-{role}", "--rounds", "2", "--value-bytes", "2000")
    codes = {code for codes in told["exit_codes"].values() for code in codes}
    assert codes == {EXIT_STORAGE}


@pytest.mark.long
def test_data_on_disks_in_memory_is_kept_with_the_account(tmp_path: Path) -> None:
    needs_namespaces()
    told = unharmed("--netns", "--faults", "full-disk-follower", "--rounds", "1", "--data", str(tmp_path))
    for number in range(1, 4):
        assert (tmp_path / f"node-{number}" / "data" / "meta.properties").is_file()
    account = json.loads((tmp_path / "account.json").read_text())
    assert account["records"] == told["records"]


# ---- two releases


@pytest.mark.long
def test_this_release_and_an_earlier_one_mix_and_each_node_can_change_to_the_other(tmp_path: Path) -> None:
    earlier = earlier_release(tmp_path)
    told = unharmed(
        "--mixed-with", f"env PYTHONPATH={earlier} {sys.executable} -m penstock",
        "--faults", "kill-leader,kill-controller,rolling-swap", "--rounds", "2",
    )  # fmt: skip
    assert "rolling-swap" in names(told)


def earlier_release(directory: Path) -> Path:
    """Its source, from this repository's history."""
    git = shutil.which("git")
    command = [str(git), "-C", str(ROOT), "archive", EARLIER_RELEASE, "src"]
    archive = git and subprocess.run(command, capture_output=True, check=False)
    if not archive or archive.returncode:
        pytest.skip(f"this is no git checkout that has {EARLIER_RELEASE}")
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as tar:
        tar.extractall(directory, filter="data")
    return directory / "src"


# ---- everything at once


@pytest.mark.long
def test_faults_that_overlap_cost_no_record() -> None:
    """Kills of two nodes at once and of a node that recovers, pauses and moves, up to three at the same time."""
    faults = "kill-*,double-kill,kill-recovering,pause-leader,reassign"
    told = unharmed("--faults", faults, "--overlap", "3", "--seconds", "60", "--rate", "2000", "--value-bytes", "30")
    assert len(told["faults"]) >= 9


@pytest.mark.long
@pytest.mark.parametrize("fault", ["cut-pair", "flap-pair", "cut-ring"])
def test_cuts_between_pairs_and_in_rings_cost_no_record(fault: str) -> None:
    needs_namespaces()
    unharmed("--netns", "--faults", f"{fault},kill-leader", "--overlap", "2", "--rounds", "2")


@pytest.mark.long
def test_one_fault_after_another_for_three_minutes() -> None:
    extra = () if isolation.missing() else ("--netns",)
    unharmed(*extra, "--seconds", "150", "--rate", "800")


# ---- clusters of others

LOSE = """
import os, sys
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
admin = AdminClient({"bootstrap.servers": sys.argv[1]})
asked = [TopicPartition(os.environ["CHAOS_TOPIC"], 0, 20)]
[future.result(60) for future in admin.delete_records(asked).values()]
print("leader", os.environ["CHAOS_LEADER"])
"""


def test_a_cluster_that_loses_records_is_found_out(tmp_path: Path) -> None:
    script = tmp_path / "lose.py"
    script.write_text(LOSE)
    with PenstockServer() as broker:
        code, told = chaos(
            "-b", broker.bootstrap, "--replication-factor", "1", "--fault",
            f"lose={sys.executable} {script} {broker.bootstrap}", "--rounds", "1",
        )  # fmt: skip
    assert code == 10
    assert not told["holds"]
    assert told["violations"]["lost"] == 20
    assert told["violations"]["vanished"] == 40  # the group and the lone reader had read them
    assert told["faults"][0]["what"] == "leader 1"


FORGETFUL = """
import sys
from penstock.log.producers import ProducerEntry
ProducerEntry.find = lambda *_: None
ProducerEntry.check_sequence = lambda *_: None
from penstock.__main__ import main
sys.exit(main())
"""
"""A broker that knows no retry when it sees one."""

SEND_AGAIN = """
import os, sys
from penstock.client import ClientSettings, Cluster, fetch_range
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from penstock.wire.records import HEADER_SIZE, read_header
topic = os.environ["CHAOS_TOPIC"]
with Cluster(ClientSettings.from_properties({"bootstrap.servers": sys.argv[1]})) as cluster:
    # The first batch of an idempotent producer: probes send without numbers.
    for fetched in fetch_range(cluster, topic, 0, 0, 50):
        records = bytes(fetched.records)
        while len(records) >= HEADER_SIZE and read_header(records).producer_id < 0:
            records = records[read_header(records).size_bytes:]
        if len(records) >= HEADER_SIZE:
            break
    batch = PartitionProduceData(index=0, records=records[:read_header(records).size_bytes])
    data = [TopicProduceData(name=topic, partition_data=[batch])]
    request = ProduceRequest(acks=-1, timeout_ms=9000, topic_data=data)
    answer = cluster.leader(topic, 0).call(request, ProduceResponse, version=12)
    print("error", answer.responses[0].partition_responses[0].error_code)
"""


@pytest.mark.parametrize("forgetful", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_broker_that_stores_a_retry_again_is_found_out_by_producer_epoch_and_sequence(
    tmp_path: Path, forgetful: bool
) -> None:
    scripts = {"broker.py": FORGETFUL, "again.py": SEND_AGAIN}
    for name, text in scripts.items():
        (tmp_path / name).write_text(text)
    command = [sys.executable, str(tmp_path / "broker.py")] if forgetful else THIS_TREE
    with PenstockServer(command=command) as broker:
        code, told = chaos(
            "-b", broker.bootstrap, "--replication-factor", "1", "--producers", "1", "--rounds", "1",
            "--fault", f"again={sys.executable} {tmp_path / 'again.py'} {broker.bootstrap}",
        )  # fmt: skip
    if not forgetful:
        # Thousands of batches later it is no retry any more, but still nothing that may be stored.
        assert (code, told["copies"]) == (0, []), told
        return
    assert code == 10
    assert told["faults"][0]["what"] == "error 0", told
    (run,) = told["copies"]
    assert run["blame"] == "broker"
    assert run["stamp"] == run["stamp_again"]
    assert told["violations"]["duplicated"] == run["count"] > 0
    assert told["records"]["resent"] == 0


OTHER_CLIENT = """
import sys
from confluent_kafka import Producer
topic, *properties = sys.argv[1:]
settings = dict(one.split("=", 1) for one in properties)
producer = Producer({**settings, "enable.idempotence": True, "acks": "all"})
for line in sys.stdin:
    number, partition, value = line.rstrip(chr(10)).split(" ", 2)
    def told(error, message, number=number):
        offset = -1 if error is not None else message.offset()
        print(number, message.partition(), offset, flush=True)
    producer.produce(topic, value.encode(), partition=int(partition), on_delivery=told)
    producer.poll(0)
producer.flush(60)
"""


def test_a_program_can_produce_in_place_of_librdkafka(tmp_path: Path) -> None:
    program = tmp_path / "producer.py"
    program.write_text(OTHER_CLIENT)
    with PenstockServer() as broker:
        code, told = chaos(
            "-b", broker.bootstrap, "--replication-factor", "1", "--seconds", "2", "--rate", "200",
            "--producer-command", f"{sys.executable} {program}",
        )  # fmt: skip
    assert code == 0, told
    assert told["records"]["acknowledged"] == told["records"]["stored"] > 100


def test_a_producing_program_that_is_not_there_is_refused_at_once() -> None:
    command = [sys.executable, "-m", "penstock", "chaos", "--brokers", "3", "--producer-command", "/nowhere/at-all"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    assert done.returncode == 2
    assert "there is no program /nowhere/at-all" in done.stderr


@pytest.mark.long
def test_apache_kafka_is_accounted_for_in_the_same_way() -> None:
    if reason := kafka_available():
        pytest.skip(reason)
    with ApacheKafka() as kafka:
        code, told = chaos("-b", kafka.bootstrap, "--replication-factor", "1", "--seconds", "10")
    assert code == 0, told
    assert told["records"]["acknowledged"] == told["records"]["stored"] > 1000
