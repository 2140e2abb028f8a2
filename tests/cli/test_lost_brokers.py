"""Brokers in racks, brokers that die or go for good while partitions move: Penstock and Apache Kafka, four of each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka.admin import AdminClient

from cli.moving import begun, fill, good, in_sync, make_topic, moving, replicas, settings
from cli.running import Run
from penstock.cli import exit_codes
from penstock.testing import Cluster
from support.apache_kafka import available
from support.apache_kafka_cluster import ApacheKafkaCluster
from support.racked_cluster import RackedCluster
from support.server_process import admin_client
from support.waiting import wait_until

RACKS = {1: "a", 2: "b", 3: "c", 4: "a"}
APACHE_KAFKA = [pytest.mark.needs_maven, pytest.mark.long, pytest.mark.timeout(600)]
CLUSTERS = [
    "penstock",
    pytest.param("penstock-processes", marks=pytest.mark.long),
    pytest.param("apache-kafka", marks=APACHE_KAFKA),
]


class Four(NamedTuple):
    """Four brokers, of whichever kind; the fourth can be taken away and brought back."""

    bootstrap: str
    admin: AdminClient
    kill: Callable[[], None]
    """As kill -9 of broker 4."""
    stop: Callable[[], None]
    start: Callable[[], None]

    def serving(self) -> list[int]:
        return sorted(self.admin.list_topics(timeout=10).brokers)

    def lose(self) -> None:
        """Broker 4 is killed, and the cluster has noticed."""
        self.kill()
        wait_until(lambda: self.serving() == [1, 2, 3], 60)

    def bring_back(self) -> None:
        if self.serving() != [1, 2, 3, 4]:
            self.start()
            wait_until(lambda: self.serving() == [1, 2, 3, 4], 90)


@pytest.fixture(scope="module", params=CLUSTERS)
def four(request: pytest.FixtureRequest) -> Iterator[Four]:
    with ExitStack() as stack:
        if request.param == "apache-kafka":
            if reason := available():
                pytest.skip(reason)
            kafka = stack.enter_context(ApacheKafkaCluster(4, racks=RACKS))
            last = kafka.nodes[4]
            yield Four(kafka.bootstrap, kafka.admin, last.kill, last.stop, last.start)
        elif request.param == "penstock-processes":
            racked = stack.enter_context(RackedCluster([{"broker.rack": rack} for rack in RACKS.values()]))
            member = racked.members[3]
            yield Four(racked.bootstrap, admin_client(racked.bootstrap), member.kill, member.stop, member.start)
        else:
            here = Cluster(brokers=4)
            for number, rack in RACKS.items():
                here.node(number).settings["broker.rack"] = rack
            stack.enter_context(here)
            node, bootstrap = here.node(4), here.bootstrap_servers
            yield Four(bootstrap, admin_client(bootstrap), node.kill, node.stop, node.start)


@pytest.fixture
def on_four(run: Run, four: Four, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: run(*arguments, "--bootstrap-server", four.bootstrap)


@pytest.fixture
def orders(four: Four, topic: str) -> Iterator[str]:
    """The name of a topic, to be made by the test; no others are there, and all brokers are."""
    yield topic
    four.bring_back()
    made = [name for name in four.admin.list_topics(timeout=30).topics if name.startswith(topic)]
    for deleted in four.admin.delete_topics(made).values():
        deleted.result(30)


def racks_of(admin: AdminClient, topic: str) -> list[str]:
    """Of each partition's replicas."""
    return ["".join(sorted(RACKS[broker] for broker in brokers)) for brokers in replicas(admin, topic).values()]


def registered(on_four: Run) -> list[int]:
    return [one["id"] for one in good(on_four("brokers", "list", "--json"))]


def test_a_broker_is_added_and_another_drained_and_replicas_stay_in_different_racks(
    four: Four, on_four: Run, orders: str
) -> None:
    make_topic(four.admin, orders, [[1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 3, 2]])
    added = good(on_four("brokers", "add", 4, "--yes", "--json", "--step", "100%"))
    assert added["moved"] == 2, "in place of broker 2 or 3 it would share a rack with broker 1"
    assert racks_of(four.admin, orders) == ["abc"] * 4
    pairs = f"{orders}-pairs"
    make_topic(four.admin, pairs, [[1, 2], [2, 1], [1, 3], [3, 1]])
    good(on_four("brokers", "drain", 2, "--yes", "--json", "--step", "100%"))
    assert racks_of(four.admin, pairs) == ["ac"] * 4, "broker 4 holds less, but is in the rack of broker 1"
    assert racks_of(four.admin, orders) == ["aac"] * 4, "there is nothing better without the only broker of a rack"


def test_replicas_in_one_rack_are_what_balance_moves_first(four: Four, on_four: Run, orders: str) -> None:
    make_topic(four.admin, orders, [[1, 4], [4, 1], [2, 3], [3, 2]])
    good(on_four("cluster", "balance", "--goals", "leaders", "--yes", "--json", "--step", "100%"))
    assert all(len(set(racks)) == 2 for racks in racks_of(four.admin, orders))


def test_a_dead_broker_is_drained_and_forgotten_and_may_come_back(four: Four, on_four: Run, orders: str) -> None:
    make_topic(four.admin, orders, [[4, 2, 3], [2, 4, 3], [3, 2, 4]], {"min.insync.replicas": "2"})
    fill(four.bootstrap, orders, 3, 100_000)
    four.lose()
    refused = on_four("reassign", "generate", "--topic", orders, "--brokers", "1,2,4")
    assert (refused.code, "broker 4 is registered, but not in service" in refused.messages) == (
        exit_codes.REFUSED, True,
    )  # fmt: skip
    drained = good(on_four("brokers", "drain", 4, "--unregister", "--yes", "--json"))
    assert drained["unregistered"]
    assert set(map(tuple, map(sorted, replicas(four.admin, orders).values()))) == {(1, 2, 3)}
    assert set(map(tuple, in_sync(four.admin, orders).values())) == {(1, 2, 3)}
    assert registered(on_four) == [1, 2, 3]
    assert "throttled" not in settings(on_four, orders)
    four.bring_back()
    assert registered(on_four) == [1, 2, 3, 4]
    assert good(on_four("brokers", "describe", 4, "--json"))["replicas"] == 0


def test_a_drained_broker_is_forgotten_when_it_was_stopped_and_not_before(
    four: Four, on_four: Run, orders: str
) -> None:
    make_topic(four.admin, orders, [[4, 2, 3], [2, 4, 3]])
    running = on_four("brokers", "drain", 4, "--unregister", "--yes", "--patience", "1s")
    assert (running.code, "still runs, so it was not unregistered" in running.messages) == (exit_codes.FAILED, True)
    assert registered(on_four) == [1, 2, 3, 4]
    process = begun(four.bootstrap, "brokers", "drain", 4, "--unregister", "--yes")
    assert process.stderr is not None
    told = next(line for line in process.stderr if "stop it now" in line)
    assert "broker 4 holds nothing any more" in told.lower()
    four.stop()
    _, messages = process.communicate(timeout=90)
    assert (process.returncode, "is forgotten" in messages) == (exit_codes.OK, True), messages
    assert registered(on_four) == [1, 2, 3]


def test_the_last_replica_is_not_given_up(four: Four, on_four: Run, orders: str) -> None:
    make_topic(four.admin, orders, [[1, 2, 3, 4]])
    many = on_four("brokers", "drain", 4, "--yes")
    why = f"only 3 brokers are left for topics that have more replicas: {orders} (4)"
    assert (many.code, why in many.messages) == (exit_codes.REFUSED, True)
    plan = good(on_four("reassign", "generate", "--topic", orders, "--replication-factor", 1, "--json"))["plan"]
    good(on_four("reassign", "execute", plan, "--yes", "--json"))
    single = f"{orders}-single"
    make_topic(four.admin, single, [[4]])
    four.lose()
    lost = on_four("brokers", "drain", 4, "--yes")
    assert (lost.code, f"offline, without a leader: {single}-0" in lost.messages) == (exit_codes.REFUSED, True)
    assert replicas(four.admin, single) == {0: [4]}
    assert "throttled" not in settings(on_four, single)


def test_what_an_earlier_run_left_on_a_broker_that_was_away_goes_when_the_throttle_is_another(
    four: Four, on_four: Run, orders: str, tmp_path: Path
) -> None:
    make_topic(four.admin, orders, [[1, 2, 3]])
    plan = tmp_path / "plan.json"
    good(on_four("reassign", "generate", "--topic", orders, "--brokers", "2,3,4", "--plan", plan, "--json",
                 "--throttle", "100KB"))  # fmt: skip
    document = json.loads(plan.read_text())
    document["penstock"]["rates_before"] = {"4": [None, None]}
    plan.write_text(json.dumps(document))
    rates = ("leader.replication.throttled.rate=100000", "follower.replication.throttled.rate=100000")
    altered = on_four("configs", "alter", "--broker", 4, "--add", rates[0], "--add", rates[1])
    assert altered.code == exit_codes.OK, altered.messages
    good(on_four("reassign", "execute", plan, "--yes", "--json", "--throttle", "20MB"))
    assert good(on_four("reassign", "status", "--json")) == {"moving": [], "throttles": {}}


@pytest.mark.long
def test_a_broker_that_dies_in_the_middle_and_stays_dead_has_its_step_cancelled(
    four: Four, on_four: Run, orders: str, tmp_path: Path
) -> None:
    make_topic(four.admin, orders, [[1, 2, 3]] * 3, {"min.insync.replicas": "2"})
    fill(four.bootstrap, orders, 3, 5_000_000)
    plan = tmp_path / "plan.json"
    good(on_four("reassign", "generate", "--topic", orders, "--brokers", "2,3,4", "--plan", plan, "--json",
                 "--throttle", "100KB", "--step", "100%"))  # fmt: skip
    process = begun(four.bootstrap, "reassign", "execute", plan, "--yes", "--patience", "15s")
    wait_until(lambda: moving(on_four), 60)
    four.kill()
    _, messages = process.communicate(timeout=110)
    assert (process.returncode, "broker 4 is not in service" in messages) == (exit_codes.FAILED, True), messages
    assert moving(on_four) == []
    assert "throttled" not in settings(on_four, orders)
    assert replicas(four.admin, orders) == {number: [1, 2, 3] for number in range(3)}
    four.bring_back()
    good(on_four("reassign", "execute", plan, "--yes", "--json", "--throttle", "20MB"))
    assert all(sorted(brokers) == [2, 3, 4] for brokers in replicas(four.admin, orders).values())
    assert good(on_four("reassign", "status", "--json")) == {"moving": [], "throttles": {}}
