"""The HTTP server in virtual time: what it serves, and what it does not let a peer do."""

from __future__ import annotations

import inspect
import json
import re
from asyncio import BufferedProtocol
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import sim
from penstock.runtime import Transport
from penstock.sim import SimRuntime
from penstock.telemetry.http.messages import HttpError, HttpRequest, HttpResponse
from penstock.telemetry.http.reader import RequestReader, parse_head
from penstock.telemetry.http.routes import Routes
from penstock.telemetry.http.server import HttpServer, Limits

PORT = 8080
BODY_MAX = 1_000
LIMITS = Limits(connections_max=4, request_ms=2_000, idle_ms=60_000, write_ms=5_000, drain_ms=3_000)


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def message(self) -> str:
        told = json.loads(self.body)
        assert set(told) == {"error_code", "message"}
        return str(told["message"])


class Peer(BufferedProtocol):
    """A client by hand: it sends bytes and takes answers apart."""

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

    async def until(self, condition: Callable[[], object], limit_ms: float = 10_000) -> None:
        end_ms = self.runtime.now_ms() + limit_ms
        while not condition():
            assert self.runtime.now_ms() < end_ms, bytes(self.received)
            await self.runtime.sleep(1)

    async def answer(self, *, head_only: bool = False) -> Answer:
        """The next answer, taken off what was received."""
        await self.until(lambda: b"\r\n\r\n" in self.received)
        head, _, _ = bytes(self.received).partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        size = 0 if head_only else int(headers.get("Content-Length", "0"))
        await self.until(lambda: len(self.received) >= len(head) + 4 + size)
        body = bytes(self.received[len(head) + 4 :][:size])
        del self.received[: len(head) + 4 + size]
        found = re.fullmatch(r"HTTP/1\.1 (\d{3}) [A-Za-z ]+", first)
        assert found is not None, first
        return Answer(int(found[1]), headers, body)

    async def ask(self, request: bytes, *, head_only: bool = False) -> Answer:
        self.transport.write(request)
        return await self.answer(head_only=head_only)


class Scene:
    """A server with a few routes, and peers on the same host."""

    def __init__(self, runtime: SimRuntime) -> None:
        self.runtime = runtime
        self.failures: list[Exception] = []
        self.served = 0
        self.served_a_turn_later: list[int] = []
        self.gate = runtime.future()
        routes = Routes()
        routes.add("GET", "/hello", self._hello)
        routes.add("GET", "/large", lambda request: HttpResponse(bytes(1_000_000)))
        routes.add("GET", "/broken", self._broken)
        routes.add("GET", "/taken", self._taken)
        routes.add("GET", "/later", self._later)
        routes.add("POST", "/echo", self._echo, body_bytes_max=BODY_MAX)
        routes.add("GET", "/things/{name}", lambda request: HttpResponse.of_json(dict(request.values)))
        routes.add("GET", "/things/all", lambda request: HttpResponse.of_json("all"))
        routes.add("DELETE", "/things/{name}", lambda request: HttpResponse(status=204))
        self.server = HttpServer(runtime, routes, lambda what, error: self.failures.append(error), LIMITS)

    def _hello(self, request: HttpRequest) -> HttpResponse:
        self.served += 1
        if self.served == 1:
            self.runtime.call_soon(lambda: self.served_a_turn_later.append(self.served))
        return HttpResponse(b"hello")

    def _broken(self, request: HttpRequest) -> HttpResponse:
        raise RuntimeError("a secret")

    def _taken(self, request: HttpRequest) -> HttpResponse:
        raise HttpError(409, "it is taken", code=40901)

    async def _later(self, request: HttpRequest) -> HttpResponse:
        await self.gate
        return HttpResponse(b"at last")

    async def _echo(self, request: HttpRequest) -> HttpResponse:
        await self.runtime.sleep(5)
        return HttpResponse(request.body)

    async def connect(self) -> Peer:
        return await self.runtime.connect("node", PORT, lambda: Peer(self.runtime))


def simulated(scenario: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Make a test of an async function that takes a `Scene`; it runs in virtual time, with several seeds."""

    def test(**parameters: Any) -> None:
        async def main(runtime: SimRuntime) -> None:
            scene = Scene(runtime)
            await scene.server.listen("node", PORT)
            await scenario(scene, **parameters)

        for seed in range(3):
            sim.run(main, seed=seed, limit_ms=3_600_000)

    test.__name__ = scenario.__name__
    signature = inspect.signature(scenario)
    test.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])  # type: ignore[attr-defined]
    return test


HELLO = b"GET /hello HTTP/1.1\r\nHost: x\r\n\r\n"


@simulated
async def test_a_connection_serves_one_request_after_the_other(scene: Scene) -> None:
    peer = await scene.connect()
    for _ in range(3):
        answer = await peer.ask(HELLO)
        assert (answer.status, answer.body, answer.headers["Connection"]) == (200, b"hello", "keep-alive")
    assert scene.server.connection_count == 1


@simulated
async def test_requests_that_come_together_are_answered_in_order(scene: Scene) -> None:
    peer = await scene.connect()
    post = b"POST /echo HTTP/1.1\r\nContent-Length: 3\r\n\r\none"
    peer.transport.write(post + HELLO + post.replace(b"one", b"two"))
    assert [(await peer.answer()).body for _ in range(3)] == [b"one", b"hello", b"two"]


@simulated
async def test_a_request_may_come_byte_by_byte(scene: Scene) -> None:
    peer = await scene.connect()
    for byte in b"POST /echo HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello":
        peer.transport.write(bytes([byte]))
        await scene.runtime.sleep(1)
    assert (await peer.answer()).body == b"hello"


@simulated
async def test_head_has_the_length_and_no_body(scene: Scene) -> None:
    peer = await scene.connect()
    answer = await peer.ask(HELLO.replace(b"GET", b"HEAD"), head_only=True)
    assert (answer.status, answer.headers["Content-Length"]) == (200, "5")
    assert (await peer.ask(HELLO)).body == b"hello"


@simulated
async def test_http_1_0_and_connection_close_end_the_connection(scene: Scene) -> None:
    for request in (b"GET /hello HTTP/1.0\r\n\r\n", HELLO.replace(b"Host: x", b"Connection: close")):
        peer = await scene.connect()
        assert (await peer.ask(request)).headers["Connection"] == "close"
        await peer.until(lambda peer=peer: peer.is_closed)


@simulated
async def test_a_peer_that_waits_for_permission_to_send_its_body_gets_it(scene: Scene) -> None:
    peer = await scene.connect()
    peer.transport.write(b"POST /echo HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
    await peer.until(lambda: peer.received)
    assert bytes(peer.received) == b"HTTP/1.1 100 Continue\r\n\r\n"
    peer.received.clear()
    assert (await peer.ask(b"hello")).body == b"hello"


@simulated
async def test_parts_of_a_path_are_decoded_and_a_literal_path_is_preferred(scene: Scene) -> None:
    peer = await scene.connect()
    assert (await peer.ask(b"GET /things/a%2Fb%C3%A9 HTTP/1.1\r\n\r\n")).body == b'{"name": "a/b\\u00e9"}'
    assert (await peer.ask(b"GET /things/all HTTP/1.1\r\n\r\n")).body == b'"all"'
    assert (await peer.ask(b"DELETE /things/all HTTP/1.1\r\n\r\n")).status == 204
    assert (await peer.ask(b"GET /things/%zz HTTP/1.1\r\n\r\n")).status == 400
    assert (await peer.ask(b"GET /things/%ff HTTP/1.1\r\n\r\n")).status == 400
    assert (await peer.ask(b"GET /things/ HTTP/1.1\r\n\r\n")).status == 404
    assert (await peer.ask(b"GET /things/a/b HTTP/1.1\r\n\r\n")).status == 404


@simulated
async def test_errors_are_json_and_the_connection_goes_on(scene: Scene) -> None:
    peer = await scene.connect()
    missing = await peer.ask(b"GET /etc/passwd HTTP/1.1\r\n\r\n")
    assert (missing.status, missing.headers["Content-Type"]) == (404, "application/json")
    assert missing.message
    wrong = await peer.ask(b"DELETE /hello HTTP/1.1\r\n\r\n")
    assert (wrong.status, wrong.headers["Allow"]) == (405, "GET, HEAD")
    taken = await peer.ask(b"GET /taken HTTP/1.1\r\n\r\n")
    assert (taken.status, json.loads(taken.body)) == (409, {"error_code": 40901, "message": "it is taken"})
    assert (await peer.ask(HELLO)).status == 200


@simulated
async def test_a_handler_that_fails_is_reported_and_tells_the_peer_nothing(scene: Scene) -> None:
    peer = await scene.connect()
    answer = await peer.ask(b"GET /broken HTTP/1.1\r\n\r\n")
    assert answer.status == 500
    assert b"secret" not in answer.body
    assert [str(error) for error in scene.failures] == ["a secret"]
    assert (await peer.ask(HELLO)).status == 200


# ---- hostile peers


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"GET  /hello HTTP/1.1\r\n\r\n", 400),
        (b"GET hello HTTP/1.1\r\n\r\n", 400),
        (b"GET /he llo HTTP/1.1\r\n\r\n", 400),
        (b"GET /\xff HTTP/1.1\r\n\r\n", 400),
        (b"GET /hello HTTP/1.1\nHost: x\r\n\r\n", 400),
        (b"GET /hello HTTP/2.0\r\n\r\n", 505),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (b"GET /hello HTTP/1.1\r\nHost : x\r\n\r\n", 400),
        (b"GET /hello HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n", 400),
        (b"GET /hello HTTP/1.1\r\nX: a\x00b\r\n\r\n", 400),
        (b"GET /hello HTTP/1.1\r\nX: a\nY: b\r\n\r\n", 400),
        (b"GET /hello HTTP/1.1\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n", 400),
        (b"POST /echo HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST /echo HTTP/1.1\r\nContent-Length: +1\r\n\r\nx", 400),
        (b"POST /echo HTTP/1.1\r\nContent-Length: 0x1\r\n\r\nx", 400),
        (b"POST /echo HTTP/1.1\r\nContent-Length: \xb2\r\n\r\nx", 400),
        (b"POST /echo HTTP/1.1\r\nContent-Length: 1001\r\n\r\n", 413),
        (b"POST /echo HTTP/1.1\r\nContent-Length: " + b"9" * 5_000 + b"\r\n\r\n", 413),
        (b"GET /hello HTTP/1.1\r\nContent-Length: 1\r\n\r\nx", 413),
        (b"POST /nowhere HTTP/1.1\r\nContent-Length: 1\r\n\r\nx", 404),
        (b"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", 411),
        (b"x" * 8192, 431),
        (b"GET /hello HTTP/1.1\r\nX: " + b"y" * 8192 + b"\r\n\r\n", 431),
    ],
)
@simulated
async def test_what_is_no_clear_request_is_refused_and_ends_the_connection(
    scene: Scene, request_: bytes, status: int
) -> None:
    peer = await scene.connect()
    # What follows may be meant for someone else: it is not served.
    peer.transport.write(request_ + HELLO)
    answer = await peer.answer()
    assert (answer.status, answer.headers["Connection"]) == (status, "close")
    assert answer.message
    await peer.until(lambda: peer.is_closed)
    assert not peer.received
    assert scene.served == 0
    assert (await (await scene.connect()).ask(HELLO)).status == 200


@simulated
async def test_a_request_that_trickles_in_is_cut_off(scene: Scene) -> None:
    for opening in (b"GET /hello HTTP/1.1\r\nX: ", b"POST /echo HTTP/1.1\r\nContent-Length: 1000\r\n\r\n"):
        peer = await scene.connect()
        began_ms = scene.runtime.now_ms()
        peer.transport.write(opening)
        while not peer.received and not peer.is_closed:
            peer.transport.write(b"x")
            await scene.runtime.sleep(100)
            assert scene.runtime.now_ms() - began_ms < LIMITS.request_ms + 1_000
        assert (await peer.answer()).status == 408
        await peer.until(lambda peer=peer: peer.is_closed)


@simulated
async def test_a_peer_that_says_nothing_is_cut_off(scene: Scene) -> None:
    silent, idle = await scene.connect(), await scene.connect()
    await idle.ask(HELLO)
    await silent.until(lambda: silent.is_closed, LIMITS.request_ms + 1_000)
    assert not idle.is_closed
    await idle.until(lambda: idle.is_closed, LIMITS.idle_ms + 1_000)


@simulated
async def test_a_peer_that_does_not_read_is_neither_served_further_nor_kept(scene: Scene) -> None:
    peer = await scene.connect()
    peer.transport.pause_reading()
    for _ in range(50):
        peer.transport.write(b"GET /large HTTP/1.1\r\n\r\n")
        await scene.runtime.sleep(2)
    held = sum(end.get_write_buffer_size() for end in scene.runtime.process.transports.values())
    assert held < 3_000_000
    began_ms = scene.runtime.now_ms()
    while scene.server.connection_count:
        await scene.runtime.sleep(100)
        assert scene.runtime.now_ms() - began_ms < LIMITS.write_ms + 2_000


@simulated
async def test_many_requests_at_once_are_served_one_in_each_turn(scene: Scene) -> None:
    peer = await scene.connect()
    peer.transport.write(HELLO * 400)
    await peer.until(lambda: scene.served_a_turn_later)
    assert scene.served_a_turn_later == [1]
    for _ in range(400):
        assert (await peer.answer()).status == 200


@simulated
async def test_idle_connections_make_room_for_new_ones(scene: Scene) -> None:
    peers = []
    for _ in range(LIMITS.connections_max + 2):
        peers.append(await scene.connect())
        assert (await peers[-1].ask(HELLO)).status == 200
    await peers[0].until(lambda: peers[0].is_closed and peers[1].is_closed)
    assert [peer.is_closed for peer in peers[2:]] == [False] * LIMITS.connections_max
    assert scene.server.connection_count == LIMITS.connections_max


@simulated
async def test_with_all_connections_busy_a_new_one_is_told_to_come_back(scene: Scene) -> None:
    busy = [await scene.connect() for _ in range(LIMITS.connections_max)]
    for peer in busy:
        peer.transport.write(b"GET /later HTTP/1.1\r\n\r\n")
    await scene.runtime.sleep(100)
    refused = await scene.connect()
    answer = await refused.answer()
    assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
    await refused.until(lambda: refused.is_closed)
    scene.gate.set_result(None)
    assert [(await peer.answer()).body for peer in busy] == [b"at last"] * LIMITS.connections_max


@simulated
async def test_a_peer_that_is_gone_before_its_answer_is_forgotten(scene: Scene) -> None:
    peers = [await scene.connect() for _ in range(3)]
    for peer in peers:
        peer.transport.write(b"GET /later HTTP/1.1\r\n\r\n" + HELLO)
    await scene.runtime.sleep(100)
    peers[0].transport.abort()
    peers[1].transport.close()
    scene.gate.set_result(None)
    assert (await peers[2].answer()).body == b"at last"
    await peers[2].until(lambda: scene.server.connection_count == 1)
    assert scene.failures == []


@simulated
async def test_closing_lets_requests_finish_and_waits_no_longer_than_it_must(scene: Scene) -> None:
    idle, busy = await scene.connect(), await scene.connect()
    await idle.ask(HELLO)
    busy.transport.write(b"GET /later HTTP/1.1\r\n\r\n")
    await scene.runtime.sleep(100)
    stopping = scene.runtime.spawn(scene.server.stop(), "stop")
    await idle.until(lambda: idle.is_closed)
    assert not stopping.done()
    scene.gate.set_result(None)
    answer = await busy.answer()
    assert (answer.body, answer.headers["Connection"]) == (b"at last", "close")
    await stopping
    with pytest.raises(ConnectionError):
        await scene.connect()


@simulated
async def test_closing_ends_requests_that_do_not_finish(scene: Scene) -> None:
    busy = await scene.connect()
    busy.transport.write(b"GET /later HTTP/1.1\r\n\r\n")
    await scene.runtime.sleep(100)
    began_ms = scene.runtime.now_ms()
    await scene.server.stop()
    assert scene.runtime.now_ms() - began_ms == pytest.approx(LIMITS.drain_ms, abs=100)
    scene.gate.set_result(None)
    await busy.until(lambda: busy.is_closed)


# ---- the reader and the messages alone


@given(st.binary(max_size=200))
def test_any_head_is_parsed_or_refused(data: bytes) -> None:
    refusal: HttpError | None = None
    try:
        assert parse_head(b"GET / HTTP/1.1\r\n" + data).body_bytes >= 0
    except HttpError as error:
        refusal = error
    assert refusal is None or refusal.status in (400, 411, 413)


@given(st.lists(st.binary(min_size=1, max_size=30), min_size=1, max_size=4), st.integers(1, 50))
def test_however_bytes_are_cut_the_same_requests_come_out(bodies: list[bytes], step: int) -> None:
    stream = b"".join(b"POST /p HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body) for body in bodies)
    reader = RequestReader(1_000)
    taken: list[bytes] = []
    for start in range(0, len(stream), step):
        reader.feed(memoryview(stream[start : start + step]))
        while (request := reader.take(lambda head: head.request)) is not None:
            taken.append(request.body)
    assert taken == bodies
    assert reader.is_empty


def test_a_header_that_a_handler_sets_cannot_begin_another() -> None:
    response = HttpResponse(headers=(("Location", "/x\r\nSet-Cookie: stolen"),)).encode(keep_alive=True)
    assert b"\r\nSet-Cookie" not in response


def test_query_and_body_are_read_on_demand_and_refused_if_they_are_nonsense() -> None:
    request = HttpRequest(method="GET", path="/", query="a=1&a=2&b=%C3%A9&c", body=b'{"x": 1}')
    assert request.parameters() == {"a": ["1", "2"], "b": ["é"], "c": [""]}
    assert request.json() == {"x": 1}
    for bad in (b"", b"{", b"\xff", b"[" * 100_000):
        with pytest.raises(HttpError, match="not JSON"):
            HttpRequest(method="GET", path="/", body=bad).json()
    for query in ("%ff=1", "&".join("abcdefgh") * 30):
        with pytest.raises(HttpError, match="query"):
            HttpRequest(method="GET", path="/", query=query).parameters()
