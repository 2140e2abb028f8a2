"""The Prometheus endpoint: metric names, and values that follow the traffic."""

from __future__ import annotations

import re
from asyncio import BufferedProtocol
from typing import Any

import pytest

from broker.session import Session, batch, fetch_request, produce_request, run_session, simulated
from penstock.runtime import Transport
from penstock.sim import SimRuntime
from penstock.sim.broker import METRICS_PORT
from penstock.wire.messages.api_versions import ApiVersionsRequest
from support.prometheus import Series, parse, promtool_verdict

BYTES_IN = "kafka_server_brokertopicmetrics_bytesin_total"
MESSAGES_IN = "kafka_server_brokertopicmetrics_messagesin_total"
BYTES_OUT = "kafka_server_brokertopicmetrics_bytesout_total"


class HttpClient(BufferedProtocol):
    """The part of HTTP that a scrape needs."""

    def __init__(self, runtime: SimRuntime) -> None:
        self.runtime = runtime
        self.received = bytearray()
        self.is_closed = False
        self._buffer = bytearray(65536)

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        self.transport = transport

    def get_buffer(self, sizehint: int) -> Any:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self._buffer[:nbytes]

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True

    def response(self) -> tuple[str, str] | None:
        """(status line, body) of the response, if it has arrived."""
        head, found, body = bytes(self.received).partition(b"\r\n\r\n")
        length = re.search(rb"Content-Length: (\d+)", head)
        if not found or length is None or len(body) < int(length[1]):
            return None
        return head.split(b"\r\n")[0].decode(), body[: int(length[1])].decode()


async def http(s: Session, request: bytes) -> tuple[str, str]:
    client = await s.runtime.connect("broker", METRICS_PORT, lambda: HttpClient(s.runtime))
    client.transport.write(request)
    await s.until(lambda: client.response() is not None, limit_ms=10_000, step_ms=1)
    response = client.response()
    assert response is not None
    client.transport.close()
    return response


async def scrape(s: Session) -> dict[str, float]:
    status, body = await http(s, b"GET /metrics HTTP/1.1\r\nHost: broker\r\n\r\n")
    assert status == "HTTP/1.1 200 OK"
    families = parse(body).values()
    return {written(series): value for family in families for series, value in family.series.items()}


def written(series: Series) -> str:
    """The text as it is on the page."""
    name, labels = series
    told = ",".join(f'{key}="{text}"' for key, text in labels)
    return f"{name}{{{told}}}" if told else name


@simulated()
async def test_every_metric_has_its_help_and_type_and_counters_are_called_totals(s: Session) -> None:
    await s.create("t")
    await s.produce("t", b"x")
    _, body = await http(s, b"GET /metrics HTTP/1.1\r\n\r\n")
    families = parse(body)
    assert all(family.help for family in families.values())
    assert {family.kind for family in families.values()} == {"counter", "gauge", "summary"}
    assert all(name.endswith("_total") for name, family in families.items() if family.kind == "counter")


def test_promtool_reads_a_brokers_page() -> None:
    pages: list[str] = []

    async def scenario(s: Session) -> None:
        await s.create("t", partitions=3)
        await s.produce("t", b"x")
        pages.append((await http(s, b"GET /metrics HTTP/1.1\r\n\r\n"))[1])

    run_session(scenario)
    verdict = promtool_verdict(pages[0])
    if verdict is None:
        pytest.skip("promtool is not installed (Debian: prometheus); `parse` has read the same page")
    assert verdict == ""


@simulated()
async def test_the_metrics_that_operators_of_kafka_know_are_there(s: Session) -> None:
    await s.create("t", partitions=3)
    await s.produce("t", b"x")
    values = await scrape(s)
    for name, expected in {
        "kafka_server_replicamanager_partitioncount": 3,
        "kafka_server_replicamanager_leadercount": 3,
        "kafka_server_replicamanager_underreplicatedpartitions": 0,
        "kafka_server_replicamanager_underminisrpartitioncount": 0,
        "kafka_controller_kafkacontroller_activecontrollercount": 1,
        "kafka_controller_kafkacontroller_offlinepartitionscount": 0,
        "kafka_controller_kafkacontroller_globaltopiccount": 1,
        "kafka_controller_kafkacontroller_globalpartitioncount": 3,
        "kafka_server_socket_server_metrics_connection_count": 1,
        "penstock_unexpected_errors_total": 0,
        "penstock_unhandled_errors_total": 0,
        "penstock_log_recovering_partitions": 0,
        'kafka_log_log_size{topic="t",partition="0"}': len(batch(b"x")),
        'kafka_log_log_size{topic="t",partition="1"}': 0,
        'kafka_network_requestmetrics_requests_total{request="Produce"}': 1,
        'kafka_network_requestmetrics_totaltimems_count{request="Produce"}': 1,
        'kafka_network_requestmetrics_requestqueuetimems_count{request="Produce"}': 1,
    }.items():
        assert values[name] == expected, name
    assert "penstock_event_loop_stall_ms_count" in values
    assert values["penstock_disk_total_bytes"] > values["penstock_disk_usable_bytes"] > 0


@simulated()
async def test_counters_follow_the_traffic(s: Session) -> None:
    await s.create("t")
    before = await scrape(s)
    sizes = 0
    for number in range(10):
        records = batch(*[b"value"] * (number + 1))
        sizes += len(records)
        await s.produce("t", records=records)
    await s.produce("t", records=batch(b"x")[:-1])
    await s.fetch("t")
    await s.fetch("t", 999)
    after = await scrape(s)

    def grown(name: str) -> float:
        return after[name] - before.get(name, 0)

    assert grown(MESSAGES_IN) == 55
    assert grown(BYTES_IN) == sizes
    assert grown(BYTES_OUT) == sizes
    assert grown("kafka_server_brokertopicmetrics_failedproducerequests_total") == 1
    assert grown("kafka_server_brokertopicmetrics_failedfetchrequests_total") == 1
    assert grown('kafka_network_requestmetrics_requests_total{request="Produce"}') == 11
    assert grown('kafka_network_requestmetrics_requests_total{request="Fetch"}') == 2


@simulated()
async def test_a_duplicate_is_not_counted_again(s: Session) -> None:
    await s.create("t")
    producer = await s.producer_id()
    records = batch(b"x", producer_id=producer, epoch=0, sequence=0)
    for _ in range(3):
        assert (await s.produce("t", records=records)).error_code == 0
    assert (await scrape(s))[MESSAGES_IN] == 1


@simulated()
async def test_rates_rise_with_the_traffic_and_fall_after_it(s: Session) -> None:
    await s.create("t")
    name = "kafka_server_brokertopicmetrics_messagesinpersec_oneminuterate"
    for _ in range(60):
        for _ in range(10):
            await s.produce("t", b"x")
        await s.runtime.sleep(1_000)
    busy = (await scrape(s))[name]
    assert 5 < busy <= 10
    await s.runtime.sleep(300_000)
    assert (await scrape(s))[name] < 0.1


@simulated()
async def test_percentiles_tell_the_slow_requests_from_the_fast(s: Session) -> None:
    await s.create("t", flush_messages="1")
    for number in range(100):
        s.node.host.disk.slowness = 200.0 if number % 20 == 0 else 1.0
        await s.produce("t", b"x")
    values = await scrape(s)
    name = "kafka_network_requestmetrics_totaltimems"
    quantiles = {q: values[f'{name}{{request="Produce",quantile="{q}"}}'] for q in (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)}
    assert list(quantiles.values()) == sorted(quantiles.values())
    assert quantiles[0.98] > 20 * quantiles[0.5]
    assert values[f'{name}_count{{request="Produce"}}'] == 100


@simulated()
async def test_percentiles_forget_what_is_older_than_a_minute(s: Session) -> None:
    await s.create("t", flush_messages="1")
    s.node.host.disk.slowness = 200.0
    for _ in range(100):
        await s.produce("t", b"x")
    name = "kafka_network_requestmetrics_totaltimems"
    p99 = f'{name}{{request="Produce",quantile="0.99"}}'
    slow_ms = (await scrape(s))[p99]
    s.node.host.disk.slowness = 1.0
    await s.runtime.sleep(61_000)
    assert (await scrape(s))[p99] == 0
    await s.produce("t", b"x")
    values = await scrape(s)
    assert 0 < values[p99] < slow_ms / 20
    assert values[f'{name}_count{{request="Produce"}}'] == 101


@simulated()
async def test_the_time_of_a_fetch_excludes_the_wait_that_it_asked_for(s: Session) -> None:
    await s.create("t")
    for _ in range(10):
        await s.call(fetch_request("t", max_wait_ms=500, min_bytes=1), 12)
    values = await scrape(s)
    name = "kafka_network_requestmetrics_totaltimems"
    assert values[f'{name}_count{{request="Fetch"}}'] == 10
    assert values[f'{name}{{request="Fetch",quantile="0.99"}}'] < 50


@simulated()
async def test_the_time_of_a_produce_includes_its_sync(s: Session) -> None:
    await s.create("t", flush_messages="1")
    s.node.host.disk.slowness = 50.0
    for _ in range(10):
        await s.produce("t", b"x")
    values = await scrape(s)
    assert values['kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.5"}'] > 20


@simulated()
async def test_requests_that_fail_are_counted_by_api(s: Session) -> None:
    other = await s.connect()
    other.post(produce_request("nowhere", batch(b"x"), acks=0), 12)
    await other.frames.closed()
    values = await scrape(s)
    assert values['kafka_network_requestmetrics_errors_total{request="Produce"}'] == 1
    assert values["penstock_frames_refused_total"] == 1


@simulated({"max.connections": "3"})
async def test_connections_are_counted_in_and_out(s: Session) -> None:
    others = [await s.connect() for _ in range(2)]
    for other in others:
        await other.call(ApiVersionsRequest(), 0)
    refused = await s.connect()
    await refused.frames.closed()
    others[0].close()
    await s.runtime.sleep(50)
    values = await scrape(s)
    assert values["kafka_server_socket_server_metrics_connection_count"] == 2
    assert values["kafka_server_socket_server_metrics_connection_creation_total"] == 4
    assert values["kafka_server_socket_server_metrics_connection_close_total"] == 1
    assert values["penstock_connections_refused_total"] == 1


@simulated()
async def test_partitions_and_sizes_follow_the_topics(s: Session) -> None:
    for name in ("a", "b"):
        await s.create(name, partitions=2)
        await s.produce(name, b"x")
    await s.delete("a")
    values = await scrape(s)
    assert values["kafka_server_replicamanager_partitioncount"] == 2
    assert [name for name in values if name.startswith("kafka_log_log_size")] == [
        'kafka_log_log_size{topic="b",partition="0"}',
        'kafka_log_log_size{topic="b",partition="1"}',
    ]


@simulated()
async def test_fetch_sessions_are_counted(s: Session) -> None:
    await s.create("t")
    await s.call(fetch_request("t", session_epoch=0), 12)
    values = await scrape(s)
    assert values["kafka_server_fetchsessioncache_numincrementalfetchsessions"] == 1
    assert values["kafka_server_fetchsessioncache_numincrementalfetchpartitionscached"] == 1


# ---- the endpoint itself


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK"),
        (b"GET / HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK"),
        (b"GET /metrics?name=x HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK"),
        (b"GET /etc/passwd HTTP/1.1\r\n\r\n", "HTTP/1.1 404 Not Found"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 405 Method Not Allowed"),
        (b"nonsense\r\n\r\n", "HTTP/1.1 400 Bad Request"),
        (b"\r\n\r\n", "HTTP/1.1 400 Bad Request"),
        (b"x" * 8192, "HTTP/1.1 431 Request Header Fields Too Large"),
    ],
)
@simulated()
async def test_invalid_scrape_requests_get_an_error(s: Session, request_: bytes, status: str) -> None:
    found, _ = await http(s, request_)
    assert found == status
    assert await scrape(s)


@simulated()
async def test_scrapes_may_come_in_pieces_and_one_after_the_other(s: Session) -> None:
    client = await s.runtime.connect("broker", METRICS_PORT, lambda: HttpClient(s.runtime))
    for _ in range(3):
        client.received.clear()
        for byte in b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n":
            client.transport.write(bytes([byte]))
            await s.runtime.sleep(1)
        await s.until(lambda: client.response() is not None, limit_ms=5_000)
        assert not client.is_closed


@simulated()
async def test_a_scraper_that_says_nothing_does_not_stay_for_ever(s: Session) -> None:
    client = await s.runtime.connect("broker", METRICS_PORT, lambda: HttpClient(s.runtime))
    client.transport.write(b"GET /met")
    await s.until(lambda: client.is_closed, limit_ms=1_200_000, step_ms=1_000)


@simulated()
async def test_a_scraper_that_asks_and_does_not_read_is_not_rendered_for(s: Session) -> None:
    await s.create("t", partitions=100)
    client = await s.runtime.connect("broker", METRICS_PORT, lambda: HttpClient(s.runtime))
    client.transport.pause_reading()
    for _ in range(500):
        client.transport.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        await s.runtime.sleep(2)
    held = sum(end.get_write_buffer_size() for end in s.node.process.transports.values())
    assert held < 1_000_000
