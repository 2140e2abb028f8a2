"""`penstock brokers add|drain`, `reassign` and `cluster balance` on four real brokers: Penstock, and Apache Kafka."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from cli.growing_load import Load, p99
from cli.moving import begun, fill, good, make_topic, moving, replicas, settings
from cli.running import Run
from penstock.cli import exit_codes
from support.apache_kafka import available, kafka_tool
from support.apache_kafka_cluster import ApacheKafkaCluster
from support.cluster import PenstockCluster
from support.waiting import wait_until

pytestmark = pytest.mark.xdist_group("four brokers")

BROKERS = 4
PARTITIONS = 6
# Four Java processes take their time to start, and the first test's time includes that.
APACHE_KAFKA = [pytest.mark.needs_maven, pytest.mark.long, pytest.mark.timeout(600)]
CLUSTERS = [pytest.param("apache-kafka", marks=APACHE_KAFKA), "penstock"]


@pytest.fixture(scope="module", params=CLUSTERS)
def four(request: pytest.FixtureRequest) -> Iterator[ApacheKafkaCluster | PenstockCluster]:
    """Four brokers; the tests put their topics onto the first three."""
    if request.param == "apache-kafka":
        if reason := available():
            pytest.skip(reason)
        with ApacheKafkaCluster(BROKERS) as kafka:
            yield kafka
    else:
        with PenstockCluster(BROKERS) as penstock:
            yield penstock


@pytest.fixture
def on_four(
    run: Run, four: ApacheKafkaCluster | PenstockCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Runs a command against the cluster, in a directory of its own."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: run(*arguments, "--bootstrap-server", four.bootstrap)


@pytest.fixture
def orders(four: ApacheKafkaCluster | PenstockCluster, topic: str) -> Iterator[str]:
    """A topic with three replicas on brokers 1 to 3; the only one there is, but those that are internal."""
    on_three(four.admin, topic)
    yield topic
    four.admin.delete_topics([topic])[topic].result(60)


def on_three(admin: AdminClient, topic: str) -> None:
    assignment = [[(number + place) % 3 + 1 for place in range(3)] for number in range(PARTITIONS)]
    make_topic(admin, topic, assignment, {"min.insync.replicas": "2"})


def _added_and_drained(on_four: Run, topic: str) -> None:
    added = good(on_four("brokers", "add", 4, "--topic", topic, "--yes", "--json", "--step", "34%"))
    assert added["moved"] == PARTITIONS * 3 // 4, "a share of four brokers"
    drained = good(on_four("brokers", "drain", 2, "--yes", "--json", "--step", "34%"))
    assert next(one["replicas"] for one in drained["brokers"] if one["id"] == 2) == 0


def test_a_broker_is_added_and_another_drained_under_load(
    four: ApacheKafkaCluster | PenstockCluster, on_four: Run, orders: str
) -> None:
    load = Load(four.bootstrap, orders, PARTITIONS)
    try:
        _added_and_drained(on_four, orders)
    finally:
        load.finish()
    for brokers in replicas(four.admin, orders).values():
        assert sorted(brokers) == [1, 3, 4]
    for internal in (name for name in four.admin.list_topics(timeout=30).topics if name.startswith("__")):
        assert all(2 not in brokers for brokers in replicas(four.admin, internal).values())
    assert "throttled" not in settings(on_four, orders)


def test_interrupted_resumed_cancelled_and_verified(
    four: ApacheKafkaCluster | PenstockCluster, on_four: Run, orders: str, tmp_path: Path
) -> None:
    fill(four.bootstrap, orders, PARTITIONS, 400_000)
    before = replicas(four.admin, orders)
    plan = tmp_path / "plan.json"
    made = good(on_four("reassign", "generate", "--topic", orders, "--brokers", "2,3,4", "--plan", plan, "--json",
                        "--throttle", "20KB", "--step", "50%"))  # fmt: skip
    assert made["bytes_to_move"] > 2_000_000
    assert replicas(four.admin, orders) == before, "a plan changes nothing"
    assert on_four("reassign", "verify", plan).code == exit_codes.UNHEALTHY

    process = begun(four.bootstrap, "reassign", "execute", plan, "--yes")
    wait_until(lambda: moving(on_four), 60)
    process.send_signal(signal.SIGINT)
    _, messages = process.communicate(timeout=60)
    assert process.returncode == exit_codes.INTERRUPTED
    assert "go on in the cluster" in messages

    assert "throttled" in on_four("reassign", "status").output
    told = on_four("brokers", "drain", 2, "--yes")
    assert (told.code, "reassignment that is not finished" in told.messages) == (exit_codes.REFUSED, True)

    cancelled = good(on_four("reassign", "cancel", plan, "--json"))
    assert cancelled["cancelled"] > 0
    now = replicas(four.admin, orders)
    wait_until(lambda: all(len(one) == 3 for one in replicas(four.admin, orders).values()))
    assert "throttled" not in settings(on_four, orders)
    assert good(on_four("reassign", "status", "--json")) == {"moving": [], "throttles": {}}
    untouched = [number for number in now if now[number] == before[number]]
    assert untouched, "what had not been begun, or was cancelled, is where it was"

    assert good(on_four("reassign", "execute", plan, "--yes", "--json", "--step", "100%", "--throttle", "20MB"))
    assert good(on_four("reassign", "verify", plan, "--json"))["done"] == len(made["moves"])
    assert all(set(one) == {2, 3, 4} for one in replicas(four.admin, orders).values())
    assert "throttled" not in settings(on_four, orders)
    again = good(on_four("reassign", "execute", plan, "--yes", "--json"))
    assert (again["moved"], again["already_done"]) == (0, len(made["moves"]))


def test_everything_that_moves_is_ended_whoever_began_it(
    four: ApacheKafkaCluster | PenstockCluster, on_four: Run, orders: str, tmp_path: Path
) -> None:
    """Whoever began it was killed, and its plan is lost: nothing but the cluster knows what moves and is throttled."""
    fill(four.bootstrap, orders, PARTITIONS, 400_000)
    plan = tmp_path / "plan.json"
    good(on_four("reassign", "generate", "--topic", orders, "--brokers", "2,3,4", "--plan", plan, "--json",
                 "--throttle", "20KB", "--step", "100%"))  # fmt: skip
    process = begun(four.bootstrap, "reassign", "execute", plan, "--yes")
    wait_until(lambda: moving(on_four), 60)
    process.kill()
    process.communicate(timeout=60)
    plan.unlink()

    unasked = on_four("reassign", "cancel", "--all")
    assert (unasked.code, "not a terminal" in unasked.messages) == (exit_codes.USAGE, True)
    assert good(on_four("reassign", "cancel", "--all", "--yes", "--json"))["cancelled"] > 0
    assert good(on_four("reassign", "status", "--json")) == {"moving": [], "throttles": {}}
    assert "throttled" not in settings(on_four, orders)
    now = {tuple(sorted(one)) for one in replicas(four.admin, orders).values()}
    assert (1, 2, 3) in now, "what was moving is back"
    assert now <= {(1, 2, 3), (2, 3, 4)}, "what was done stays done"
    assert good(on_four("reassign", "cancel", "--all", "--json"))["cancelled"] == 0


def _changed(change: Callable[[dict[str, Any]], None]) -> Callable[[str], str]:
    def rewrite(text: str) -> str:
        document = json.loads(text)
        change(document)
        return json.dumps(document)

    return rewrite


BAD_PLANS = {
    "unknown broker": (_changed(lambda plan: plan["partitions"][0].update(replicas=[1, 2, 77])), "no broker 77"),
    "more replicas than brokers": (
        _changed(lambda plan: plan["partitions"][0].update(replicas=[1, 2, 3, 4, 5])), "there are 4 brokers",
    ),
    "stale": (_changed(lambda plan: plan["partitions"][0].update(was=[1, 2, 4])), "when the plan was made"),
    "another cluster": (_changed(lambda plan: plan["penstock"].update(cluster="elsewhere")), "cluster elsewhere"),
    "a broker twice": (_changed(lambda plan: plan["partitions"][0].update(replicas=[1, 1, 2])), "listed twice"),
    "a topic that is gone": (_changed(lambda plan: plan["partitions"][0].update(topic="gone")), "no such partition"),
    "half a file": (lambda text: text[: len(text) // 2], "not JSON"),
}  # fmt: skip


def test_bad_plans_are_refused_and_nothing_is_changed(
    four: ApacheKafkaCluster | PenstockCluster, on_four: Run, orders: str, tmp_path: Path
) -> None:
    before = replicas(four.admin, orders)
    plan = tmp_path / "plan.json"
    good(on_four("reassign", "generate", "--topic", orders, "--brokers", "2,3,4", "--plan", plan, "--json"))
    text = plan.read_text()
    for name, (spoil, reason) in BAD_PLANS.items():
        plan.write_text(spoil(text))
        refused = on_four("reassign", "execute", plan, "--yes")
        assert (refused.code, reason in refused.messages) == (exit_codes.REFUSED, True), f"{name}: {refused.messages}"
    plan.write_text(text)
    moved = tmp_path / "moved.json"
    good(on_four("reassign", "generate", "--topic", orders, "--brokers", "1,3,4", "--plan", moved, "--json"))
    good(on_four("reassign", "execute", moved, "--yes", "--json", "--step", "100%"))
    before = replicas(four.admin, orders)
    late = on_four("reassign", "execute", plan, "--yes")
    assert (late.code, "when the plan was made" in late.messages) == (exit_codes.REFUSED, True)
    nobody = on_four("brokers", "add", 77, "--yes")
    assert (nobody.code, "no broker 77" in nobody.messages) == (exit_codes.REFUSED, True)
    many = on_four("reassign", "generate", "--topic", orders, "--replication-factor", 5)
    assert (many.code, "5 replicas cannot be on 4 brokers" in many.messages) == (exit_codes.REFUSED, True)
    few = on_four("reassign", "generate", "--topic", orders, "--brokers", "1,2")
    assert (few.code, "only 2 brokers are left" in few.messages) == (exit_codes.REFUSED, True)
    unasked = on_four("brokers", "drain", 3)
    assert (unasked.code, "not a terminal" in unasked.messages) == (exit_codes.USAGE, True)
    assert replicas(four.admin, orders) == before
    assert "throttled" not in settings(on_four, orders)


def test_a_cluster_is_balanced_by_itself_after_two_looks_that_agree(
    four: ApacheKafkaCluster | PenstockCluster, on_four: Run, orders: str
) -> None:
    assert on_four("cluster", "balance", "--dry-run", "--goals", "colour").code == exit_codes.USAGE
    shown = good(on_four("cluster", "balance", "--dry-run", "--json", "--goals", "replicas,leaders"))
    assert shown["moves"]
    assert all(one["why"] for one in shown["moves"])
    kept = on_four(
        "cluster", "balance", "--every", "100ms", "--rounds", 3, "--goals", "replicas,leaders", "--yes",
        "--step", "100%", "--tolerance", "15%",
    )  # fmt: skip
    assert kept.code == exit_codes.OK, kept.messages
    assert "one more look" in kept.messages
    assert "balanced enough" in kept.messages
    again = on_four("cluster", "balance", "--dry-run", "--goals", "replicas,leaders", "--tolerance", "15%")
    assert "nothing needs to move" in again.messages


@pytest.mark.long
def test_traffic_is_measured_and_topics_are_kept_on_the_brokers_of_their_group(
    four: ApacheKafkaCluster | PenstockCluster, on_four: Run, orders: str
) -> None:
    by_traffic = ("cluster", "balance", "--dry-run", "--json", "--goals", "traffic", "--sample", "1s")
    load = Load(four.bootstrap, orders, PARTITIONS)
    try:
        busy = good(on_four(*by_traffic))
    finally:
        load.finish()
    assert any("broker 4" in one["why"] for one in busy["moves"]), "which nobody writes to"
    assert all(one["why"].startswith("traffic") for one in busy["moves"])
    assert good(on_four(*by_traffic))["moves"] == [], "now nobody writes to any"
    kept = ("--goals", "leaders", "--group", f"{orders}=2,3,4", "--step", "100%")
    good(on_four("cluster", "balance", *kept, "--yes", "--json"))
    assert all(sorted(one) == [2, 3, 4] for one in replicas(four.admin, orders).values())


@pytest.mark.long
def test_a_broker_killed_in_the_middle_delays_the_plan_and_no_more(
    four: ApacheKafkaCluster | PenstockCluster, on_four: Run, orders: str, tmp_path: Path
) -> None:
    fill(four.bootstrap, orders, PARTITIONS, 2_000_000)
    plan = tmp_path / "plan.json"
    good(on_four("reassign", "generate", "--topic", orders, "--brokers", "2,3,4", "--plan", plan, "--json",
                 "--throttle", "1MB", "--step", "50%"))  # fmt: skip
    process = begun(four.bootstrap, "reassign", "execute", plan, "--yes")
    wait_until(lambda: moving(on_four), 60)
    four.kill(4)
    if isinstance(four, ApacheKafkaCluster):
        four.restart(4)
    _, messages = process.communicate(timeout=110)
    assert process.returncode == exit_codes.OK, messages
    assert all(set(one) == {2, 3, 4} for one in replicas(four.admin, orders).values())
    assert "throttled" not in settings(on_four, orders)


@pytest.mark.long
@pytest.mark.needs_maven
def test_kafkas_own_tool_reads_our_plans_and_we_read_its(
    four: ApacheKafkaCluster | PenstockCluster, on_four: Run, orders: str, tmp_path: Path
) -> None:
    if reason := available():
        pytest.skip(reason)
    plan = tmp_path / "plan.json"
    good(on_four("reassign", "generate", "--topic", orders, "--brokers", "2,3,4", "--plan", plan, "--json"))
    kafkas = ("ReassignPartitionsCommand", "--bootstrap-server", four.bootstrap, "--reassignment-json-file", str(plan))
    assert "Successfully started" in kafka_tool(*kafkas, "--execute").stdout
    wait_until(lambda: on_four("reassign", "verify", plan).code == exit_codes.OK, 60)
    assert "is completed" in kafka_tool(*kafkas, "--verify").stdout
    theirs = [
        {"topic": orders, "partition": number, "replicas": [1, 2, 3], "log_dirs": ["any", "any", "any"]}
        for number in range(PARTITIONS)
    ]
    plan.write_text(json.dumps({"version": 1, "partitions": theirs}))
    good(on_four("reassign", "execute", plan, "--yes", "--json"))
    assert all(one == [1, 2, 3] for one in replicas(four.admin, orders).values())


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_minute_of_copying_under_load_fails_no_write_and_at_most_doubles_p99(
    four: ApacheKafkaCluster | PenstockCluster, on_four: Run, orders: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Data to copy in one topic, writers with acks=all on another; both move. Wants a machine at rest."""
    bulk = f"{orders}-bulk"
    on_three(four.admin, bulk)
    fill(four.bootstrap, bulk, PARTITIONS, 10_000_000)
    load = Load(four.bootstrap, orders, PARTITIONS)
    try:
        wait_until(lambda: load.acknowledged > 4_000, 60)
        before = load.latencies_of(lambda: wait_until(lambda: load.acknowledged > 12_000, 120))
        during = load.latencies_of(lambda: _grown_and_shrunk(on_four))
    finally:
        load.finish()
        four.admin.delete_topics([bulk])[bulk].result(60)
    with capsys.disabled():
        sys.stderr.write(
            f"\n{type(four).__name__}: p99 of {len(before):,} acknowledgements before {p99(before):.1f} ms, "
            f"of {len(during):,} while a broker was added and another drained {p99(during):.1f} ms "
            f"(p50 {before[len(before) // 2]:.1f} and {during[len(during) // 2]:.1f} ms)\n"
        )
    assert p99(during) <= 2 * p99(before)


def _grown_and_shrunk(on_four: Run) -> None:
    good(on_four("brokers", "add", 4, "--yes", "--json", "--throttle", "1MB"))
    good(on_four("brokers", "drain", 2, "--yes", "--json", "--throttle", "1MB"))
