"""A broker's directory as bytes: copied from one simulated disk, damaged, and given to a broker that starts from it.

Whatever the damage, these results are allowed: every topic is served with every record; a partition is refused and its
files are unchanged; or the node refuses to start and all files are unchanged. Anything else is silent loss.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from broker.session import Session, is_recovered
from penstock.broker.starting import StartRefused
from penstock.sim import SimRuntime, World
from penstock.sim.broker import SimBroker
from penstock.sim.disk import SimDisk
from penstock.sim.namespace import Directory
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.metadata import MetadataRequest

Files = dict[str, bytes]
"""Contents by path."""

METADATA = "__cluster_metadata-0"
METADATA_LOG = f"{METADATA}/00000000000000000000.log"
SEGMENT = "00000000000000000000.log"
START_LIMIT_MS = 120_000
TOPICS = {"logs": [[b"x"]], "orders": [[b"order %d" % n for n in range(20)], [b"other %d" % n for n in range(7)]]}


@dataclass
class Scene:
    """A directory, and the records that a client must be able to read from it."""

    files: Files
    topics: dict[str, list[list[bytes]]]
    """The values of each partition."""
    settings: Mapping[str, str] = field(default_factory=dict)


def copy_of(disk: SimDisk) -> Files:
    def walk(directory: Directory, prefix: str) -> Iterator[tuple[str, bytes]]:
        for name, node in sorted(directory.entries.items()):
            if isinstance(node, Directory):
                yield f"{prefix}{name}/", b""
                yield from walk(node, f"{prefix}{name}/")
            else:
                yield prefix + name, bytes(node.data)

    return {path: data for path, data in walk(disk.namespace.root, "") if path != ".lock"}


def put(disk: SimDisk, files: Files) -> None:
    """Write the files to an empty disk, durably."""
    namespace = disk.namespace
    for path, data in files.items():
        if path.endswith("/"):
            namespace.mkdir(path[:-1])
            continue
        inode = namespace.create(path, 0)
        inode.data[:] = inode.durable[:] = data
    namespace.finish_sync(list(namespace._journal))


def scene(
    *,
    stop: str = "kill",
    settings: Mapping[str, str] | None = None,
    topics: dict[str, list[list[bytes]]] | None = None,
    wait_ms: float = 0,
) -> Scene:
    """Two topics with records and settings on one node, which then stopped in the given way."""
    topics = TOPICS if topics is None else topics
    with World("damage") as world:
        node = SimBroker(world, settings)
        node.start()

        async def fill(runtime: SimRuntime) -> None:
            s = await Session.open(runtime, node)
            for topic, partitions in topics.items():
                await s.create(topic, len(partitions), retention_ms="86400000")
                for index, values in enumerate(partitions):
                    for value in values:
                        assert (await s.produce(topic, value, partition=index)).error_code == 0
            await s.producer_id()

        world.execute(fill)
        world.run(wait_ms)
        if stop == "clean":
            node.stop()
        else:
            node.host.kill()
        return Scene(copy_of(node.host.disk), topics, dict(settings or {}))


def flipped(data: bytes, position: int, bit: int) -> bytes:
    changed = bytearray(data)
    changed[position] ^= 1 << bit
    return bytes(changed)


def mutations(data: bytes, positions: range) -> Iterator[tuple[str, bytes | None]]:
    """One flipped bit at each position; truncated, emptied, zeroed, or missing."""
    for number, position in enumerate(positions):
        yield f"bit {number % 8} of byte {position} flipped", flipped(data, position, number % 8)
    for size in (0, 1, len(data) // 3, len(data) // 2, len(data) - 1):
        yield f"truncated to {size}", data[:size]
    yield "zeroed", bytes(len(data))
    yield "second half zeroed", data[: len(data) // 2] + bytes(len(data) - len(data) // 2)
    yield "removed", None


def outcome(scene: Scene, files: Files, what: str) -> str:
    """Start from these files, twice. Fails unless everything is served, or refused and kept."""
    with World(what) as world:
        node = SimBroker(world, scene.settings)
        put(node.host.disk, files)
        first = _start(node, scene, files, what)
        if not node.process.is_dead:
            node.host.kill()
        second = _start(node, scene, files, f"{what}, second start")
        assert first == second or first == "served", f"{what}: {first} at first, then {second}"
        return first


def _start(node: SimBroker, scene: Scene, files: Files, what: str) -> str:
    process = node.begin(watched=True)
    node.world.run_until(lambda: node.ready or process.is_dead, START_LIMIT_MS)
    if process.is_dead:
        try:
            process.result()
        except StartRefused as refusal:
            _expect_data(scene, files, copy_of(node.host.disk), what)
            return f"refused: {refusal}"
        raise AssertionError(f"{what}: ended without a reason")
    assert node.ready, f"{what}: it neither serves nor refuses"
    refused = node.events.said("log not opened", "partition")
    node.world.execute(lambda runtime: _expect_served(runtime, node, scene, refused, what))
    if not refused:
        return "served"
    kept = {path: data for path, data in files.items() if path.split("/")[0] in refused}
    _expect_data(scene, kept, copy_of(node.host.disk), what)
    return f"partition refused: {node.events.said('log not opened', 'error')[0]}"


def _expect_data(scene: Scene, before: Files, after: Files, what: str) -> None:
    for path, data in before.items():
        if path.endswith(".log") and not path.startswith(METADATA):
            assert after.get(path) == data, f"{what}: {path} is not what it was"


async def _expect_served(runtime: SimRuntime, node: SimBroker, scene: Scene, refused: list[str], what: str) -> None:
    s = await Session.open(runtime, node)
    names = [topic.name for topic in (await s.call(MetadataRequest(topics=None))).topics]
    assert names == sorted(scene.topics), f"{what}: the topics are {names}"
    await s.until(lambda: not node.served.manager.recovering, limit_ms=START_LIMIT_MS)
    await s.until(lambda: bool(refused) or is_recovered(node), limit_ms=START_LIMIT_MS)
    for topic, partitions in scene.topics.items():
        for index, values in enumerate(partitions):
            if f"{topic}-{index}" in refused:
                code = (await s.produce(topic, b"new", partition=index)).error_code
                assert code == ErrorCode.KAFKA_STORAGE_ERROR, f"{what}: {code}"
            else:
                assert await s.values(topic, index) == values, f"{what}: {topic}-{index}"
