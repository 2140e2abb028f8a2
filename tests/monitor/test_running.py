"""The monitor on real brokers: what it writes can be read back, and nothing that goes away stops it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from penstock import client
from penstock.monitor.collector import Collector
from penstock.monitor.history import read_rollups, read_samples, resume
from penstock.monitor.rollups import Rollups
from penstock.monitor.running import Monitor, Settings
from penstock.monitor.samples import DAY_MS, RAW_TOPIC, Kind
from penstock.monitor.scraping import BODY_BYTES_MAX, ScrapeFailed, parse, scrape
from penstock.monitor.writer import Writer
from penstock.telemetry.background import BackgroundServer
from penstock.telemetry.endpoint import metrics_routes
from penstock.testing import Cluster

NOW_MS = 1_763_430_000_000


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def s(self) -> float:
        return self.now

    def ms(self) -> int:
        return NOW_MS + int(self.now * 1000)


@contextmanager
def watching(bootstrap: str, clock: Clock, **endpoints: object) -> Iterator[Monitor]:
    settings = client.ClientSettings.from_properties(
        {"bootstrap.servers": bootstrap, "default.api.timeout.ms": 3_000, "request.timeout.ms": 3_000}
    )
    with client.Cluster(settings) as cluster:
        collector = Collector(cluster, now_s=clock.s, **endpoints)  # type: ignore[arg-type]
        said: list[str] = []
        monitor = Monitor(
            collector, Writer(cluster), Settings(budget=0.99), say=said.append, now_s=clock.s, wall_ms=clock.ms
        )
        monitor.said = said  # type: ignore[attr-defined]
        yield monitor


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3) as running:
        yield running


def test_samples_are_written_and_read_back(cluster: Cluster) -> None:
    clock = Clock()
    cluster.create_topic("read-back", partitions=2)
    with watching(cluster.bootstrap_servers, clock) as monitor:
        assert monitor.round()
        cluster.produce("read-back", [("k", "v")] * 40)
        clock.now += 10
        assert monitor.round()
        span = read_samples(monitor.collector._cluster, NOW_MS)
        series = span.series(Kind.TOPIC, "messages_in_per_s")
        assert [value for _, value in series["read-back"]] == [4.0]
        assert span.first_ms is not None
        assert not span.is_cut
        assert monitor.writer is not None
        assert monitor.writer.waiting == 0
        assert monitor.writer.written == monitor.totals.samples
        names = {sample.name for sample in monitor.exposed()}
        assert {"penstock_monitor_topic_messages_in_per_s", "penstock_monitor_rounds_total"} <= names


def test_a_restarted_monitor_continues_the_rollups(cluster: Cluster) -> None:
    clock = Clock()
    clock.now += DAY_MS / 1000
    with watching(cluster.bootstrap_servers, clock) as monitor:
        monitor.round()
        monitor._write(final=True)
        known = monitor.collector._cluster
        written = [one for one in read_rollups(known, clock.ms() - DAY_MS) if one.width_ms == DAY_MS]
        assert written
        continued = Rollups()
        assert resume(continued, known, monitor.observed.shape.cluster_id, clock.ms()) >= len(written)


def test_a_dead_broker_is_counted_and_stops_nothing(cluster: Cluster) -> None:
    clock = Clock()
    with watching(cluster.bootstrap_servers, clock) as monitor:
        assert monitor.round()
        victim = cluster.node(3)
        victim.kill()
        try:
            for _ in range(60):
                clock.now += 10
                monitor.round()
                newest = {(one.kind, one.name, one.metric): one.value for one in monitor.newest}
                if newest.get((Kind.BROKER, str(victim.id), "up")) == 0:
                    break
            else:
                pytest.fail("the dead broker was not noticed")
            assert newest[Kind.CLUSTER, "", "brokers_down"] == 1
        finally:
            victim.start()


def test_a_cluster_that_is_away_is_said_once_and_rounds_go_on() -> None:
    clock = Clock()
    with watching("127.0.0.1:1", clock) as monitor:
        for _ in range(2):
            assert not monitor.round()
            clock.now += 10
        said = monitor.said  # type: ignore[attr-defined]
        assert len(said) == 1
        assert "does not answer" in said[0]
        assert monitor.totals.failures == 2
        assert {sample.name: sample.value for sample in monitor.exposed()}["penstock_monitor_reached"] == 0


def test_records_that_cannot_be_written_wait_and_the_oldest_are_dropped() -> None:
    settings = client.ClientSettings.from_properties({"bootstrap.servers": "127.0.0.1:1"})
    with client.Cluster(settings) as nowhere:
        writer = Writer(nowhere, waiting_max=10)
        for number in range(15):
            writer.add_bytes(RAW_TOPIC, b"k", str(number).encode())
        assert (writer.waiting, writer.dropped) == (10, 5)


def test_a_monitor_that_is_stopped_ends_at_once(cluster: Cluster) -> None:
    stop = threading.Event()
    stop.set()
    with watching(cluster.bootstrap_servers, Clock()) as monitor:
        monitor.run(stop)
        assert monitor.totals.rounds == 0


# ---- endpoints


def test_a_broker_without_metrics_costs_only_its_figures(cluster: Cluster) -> None:
    clock = Clock()
    with watching(
        cluster.bootstrap_servers, clock, brokers={1: "127.0.0.1:1"}, pipelines={"p": "127.0.0.1:1"}
    ) as monitor:
        assert monitor.round()
        newest = {(one.kind, one.name, one.metric): one.value for one in monitor.newest}
        assert newest[Kind.PIPELINE, "p", "up"] == 0
        assert newest[Kind.CLUSTER, "", "unassessed"] == 2
        assert any("127.0.0.1:1/metrics does not answer" in text for text in monitor.said)  # type: ignore[attr-defined]


def test_a_page_is_read_whatever_its_labels_hold() -> None:
    text = (
        "# HELP a A\na 1\n"
        'b{topic="x} y",partition="0"} 2.5 1700000000000\n'
        'b{topic="z",} 3\nb_other NaN\nbroken\nb{ 4\nc 5\n'
    )
    assert parse(text, ["a", "b"]) == {"a": 1.0, 'b{topic="x} y",partition="0"}': 2.5, 'b{topic="z"}': 3.0}


def test_an_endpoint_that_is_not_one_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        address = "{}:{}".format(*listener.getsockname())
        with pytest.raises(ScrapeFailed, match="does not answer"):
            scrape(address, ["a"], timeout_s=0.1)
    with BackgroundServer("127.0.0.1", 0, metrics_routes(list)) as server:
        assert scrape(server.address, ["a"]) == {}
        monkeypatch.setattr("penstock.monitor.scraping.BODY_BYTES_MAX", -1)
        with pytest.raises(ScrapeFailed, match="larger"):
            scrape(server.address, ["a"])
    assert BODY_BYTES_MAX > 0
