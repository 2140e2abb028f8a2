"""A real broker on a simulated host, and a client that talks to it in real bytes.

    with World(seed) as world:
        node = SimBroker(world, {"num.partitions": "3"})
        node.start()

        async def scenario(runtime: SimRuntime) -> None:
            client = await ProtocolClient.connect(runtime, node)
            answer = await client.call(MetadataRequest(topics=None), 12)

        world.execute(scenario)

`SimBroker` corresponds to `penstock server` in production: it starts `penstock.broker.server.Broker`, waits for SIGTERM
(`node.host.stop()`) and stops it cleanly. Its host can be killed, lose power and start again; the disk is kept.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Generator, Mapping
from functools import partial
from typing import Any, NamedTuple

from penstock.broker.server import Broker
from penstock.broker.starting import StartInterrupted
from penstock.config import BrokerConfig
from penstock.runtime import Runtime, Tls
from penstock.sim.client import FrameClient
from penstock.sim.host import Host, Process
from penstock.sim.runtime import SimRuntime
from penstock.sim.world import World
from penstock.wire.apis import OF_CONTROLLERS, SERVED, ServedApi
from penstock.wire.codec import Limits, Message, decode_whole, encode
from penstock.wire.headers import read_response_header, write_request_header

__all__ = [
    "KAFKA_PORT",
    "METRICS_PORT",
    "Answer",
    "ProtocolClient",
    "RecordedEvent",
    "RecordedEvents",
    "SimBroker",
    "api_of",
    "read_answer",
    "request_frame",
]

KAFKA_PORT = 9092
METRICS_PORT = 9404
START_LIMIT_MS = 60_000.0
CLIENT_ID = "sim"
ANSWER_LIMITS = Limits(max_elements=10_000_000)

_API_OF: dict[type[Message], ServedApi] = {}


class RecordedEvent(NamedTuple):
    """One event of a broker's log."""

    level: str
    event: str
    fields: dict[str, object]


class RecordedEvents:
    """An `EventLog` that keeps everything, for tests to inspect."""

    def __init__(self) -> None:
        self.all: list[RecordedEvent] = []

    def info(self, event: str, **fields: object) -> None:
        self.all.append(RecordedEvent("INFO", event, fields))

    def warning(self, event: str, **fields: object) -> None:
        self.all.append(RecordedEvent("WARN", event, fields))

    def error(self, event: str, **fields: object) -> None:
        self.all.append(RecordedEvent("ERROR", event, fields))

    def limited(self, event: str, **fields: object) -> None:
        self.warning(event, **fields)

    def recurring(self, event: str, subject: object, **fields: object) -> None:
        self.info(event, **fields)

    def named(self, event: str) -> list[RecordedEvent]:
        return [entry for entry in self.all if entry.event == event]

    def said(self, event: str, field: str) -> list[str]:
        """The values of this field, one per occurrence of the event."""
        return [str(entry.fields.get(field)) for entry in self.named(event)]


class SimBroker:
    """A host that runs a broker."""

    def __init__(self, world: World, settings: Mapping[str, str] | None = None, *, name: str = "broker") -> None:
        self.world = world
        self.host: Host = world.host(name)
        self.settings = dict(settings or {})
        self.events = RecordedEvents()
        self.broker: Broker | None = None
        """The broker of the current or last process; None between the start of a process and its first step."""
        self.ready = False

    @property
    def name(self) -> str:
        return self.host.name

    @property
    def served(self) -> Broker:
        assert self.broker is not None, f"{self.name} was never started"
        return self.broker

    @property
    def process(self) -> Process:
        assert self.host.process is not None, f"{self.name} was never started"
        return self.host.process

    def begin(self, *, watched: bool = False) -> Process:
        """Starts the process and returns at once. `watched`: the caller checks how it ends, whatever the reason."""
        self.ready = False
        self.broker = None
        process = self.host.start(self._main)
        process.is_watched = watched
        return process

    def start(self) -> None:
        """Starts the process and lets time pass until it serves."""
        self.begin()
        self.world.run_until(lambda: self.ready or self.process.is_dead, START_LIMIT_MS)
        if self.process.is_dead:
            self.process.result()

    def stop(self) -> None:
        """Asks it to end (SIGTERM), and lets time pass until it has."""
        self.host.stop()
        self.world.run_until(lambda: self.process.is_dead, START_LIMIT_MS)
        self.process.result()

    def restart(self, *, power_loss: bool = False) -> None:
        """Ends it without warning and starts it again."""
        if power_loss:
            self.host.power_loss()
        else:
            self.host.kill()
        self.start()

    def config(self) -> BrokerConfig:
        static = {
            "node.id": "1",
            "log.dirs": "simulated",
            "listeners": f"PLAINTEXT://{self.name}:{KAFKA_PORT}",
            **self.settings,
        }
        return BrokerConfig.resolve(static)

    async def _main(self, runtime: SimRuntime) -> None:
        stopping: Future[None] = runtime.future()
        runtime.on_stop(partial(stopping.set_result, None))
        metrics_address = (self.name, METRICS_PORT)
        self.broker = Broker(runtime, self.config(), self.events, metrics_address=metrics_address)
        try:
            await self.broker.start()
        except StartInterrupted:
            return
        self.ready = True
        await stopping
        await self.broker.stop()


class Answer:
    """A pending response: await it. Raises ConnectionError if the broker closes the connection instead."""

    def __init__(self, frame: Future[bytes], request: Message, version: int, correlation_id: int) -> None:
        self._frame = frame
        # A client that abandons its connection does not await every response: mark the error as retrieved.
        frame.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._request = request
        self._version = version
        self._correlation_id = correlation_id

    @property
    def has_come(self) -> bool:
        return self._frame.done()

    def __await__(self) -> Generator[Any, None, Any]:
        data = yield from self._frame
        return read_answer(data, self._request, self._version, self._correlation_id)


class ProtocolClient:
    """One connection to a broker: typed requests out, typed responses in. Several may be in flight at once."""

    def __init__(self, frames: FrameClient) -> None:
        self.frames = frames
        self.client_id: str | None = CLIENT_ID
        self._correlation_id = 0

    @classmethod
    async def connect(
        cls, runtime: Runtime, node: SimBroker, *, port: int = KAFKA_PORT, tls: Tls | None = None
    ) -> ProtocolClient:
        return cls(await FrameClient.connect(runtime, node.name, port, tls))

    async def call(self, request: Message, version: int) -> Any:
        """Sends the request and returns its typed response."""
        return await self.send(request, version)

    def send(self, request: Message, version: int) -> Answer:
        """Sends now; await the response later."""
        correlation_id = self.post(request, version)
        return Answer(self.frames.receive(), request, version, correlation_id)

    def post(self, request: Message, version: int) -> int:
        """Sends a request without awaiting a response, as with acks=0. Returns the correlation id."""
        self._correlation_id += 1
        self.frames.send(request_frame(request, version, self._correlation_id, self.client_id))
        return self._correlation_id

    def close(self) -> None:
        self.frames.close()


def api_of(request: type[Message]) -> ServedApi:
    """The row of the API table for this request."""
    if not _API_OF:
        _API_OF.update((api.request, api) for api in (*OF_CONTROLLERS.values(), *SERVED.values()))
    return _API_OF[request]


def request_frame(request: Message, version: int, correlation_id: int, client_id: str | None = CLIENT_ID) -> bytes:
    """Header and body, without the length prefix."""
    out = bytearray()
    write_request_header(out, api_of(type(request)).key, version, correlation_id, client_id)
    encode(request, version, out)
    return bytes(out)


def read_answer(data: bytes, request: Message, version: int, correlation_id: int) -> Message:
    """The response in a frame, which must match the request and contain nothing else."""
    api = api_of(type(request))
    found, position = read_response_header(data, api.key, version)
    assert found == correlation_id, f"expected response {correlation_id}, got {found}"
    return decode_whole(api.response, version, data, position, limits=ANSWER_LIMITS)
