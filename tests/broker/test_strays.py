"""Directories that the metadata does not mention are set aside, counted, kept for a while, and then removed."""

from __future__ import annotations

from broker.damaging import METADATA, Files, copy_of, put, scene
from broker.session import Session, is_recovered, measured
from penstock.sim import SimRuntime, World
from penstock.sim.broker import SimBroker

SETTINGS = {"penstock.stray.retention.ms": "60000", "log.retention.check.interval.ms": "5000"}


def interrupted_deletion() -> Files:
    """A topic was deleted, and the process died before its directories were removed."""
    found = scene()
    with World("deletion") as world:
        node = SimBroker(world)
        put(node.host.disk, found.files)
        node.start()

        async def delete(runtime: SimRuntime) -> None:
            s = await Session.open(runtime, node)
            await s.until(lambda: is_recovered(node))
            await s.delete("orders")

        world.execute(delete)
        node.host.kill()
        after = copy_of(node.host.disk)
    return after | {path: data for path, data in found.files.items() if path.startswith("orders-")}


def strays(node: SimBroker) -> list[str]:
    return [name for name in node.host.disk.namespace.root.entries if name.endswith("-stray")]


def test_directories_of_a_deleted_topic_are_set_aside_counted_and_removed_in_time() -> None:
    files = interrupted_deletion()
    with World("strays") as world:
        node = SimBroker(world, SETTINGS)
        put(node.host.disk, files)
        node.start()
        kept = node.events.said("stray log set aside", "kept")
        assert sorted(kept) == sorted(strays(node))
        segment = f"{kept[0]}/00000000000000000000.log"
        assert node.host.disk.content(segment) == files["orders-0/00000000000000000000.log"]
        assert measured(node, "penstock_log_strays") == 2
        node.restart()
        assert sorted(kept) == sorted(strays(node))
        world.run(50_000)
        assert len(strays(node)) == 2
        world.run(20_000)
        assert strays(node) == []
        assert measured(node, "penstock_log_strays") == 0
        assert sorted(node.events.said("stray removed", "directory")) == sorted(kept)


def test_strays_are_kept_while_the_metadata_is_in_doubt() -> None:
    class InDoubt:
        is_sound = False

        async def removed_topics(self) -> dict[str, str]:
            return {}

    with World("doubt") as world:
        node = SimBroker(world, SETTINGS)
        put(node.host.disk, interrupted_deletion())
        node.start()
        node.served.manager._metadata = InDoubt()
        world.run(300_000)
        assert len(strays(node)) == 2


def test_a_stray_of_another_release_is_kept_from_the_day_it_is_found() -> None:
    with World("older") as world:
        node = SimBroker(world, SETTINGS)
        files = scene().files
        old = {path.replace("logs-0/", "gone-0.0123-stray/"): data for path, data in files.items() if "logs-0/" in path}
        put(node.host.disk, files | old)
        node.start()
        world.run(50_000)
        assert strays(node) == ["gone-0.0123-stray"]
        world.run(30_000)
        assert strays(node) == []


def test_a_start_that_is_refused_sets_nothing_aside() -> None:
    files = interrupted_deletion()
    del files[f"{METADATA}/00000000000000000000.log"]
    with World("refused") as world:
        node = SimBroker(world, SETTINGS)
        put(node.host.disk, files)
        process = node.begin(watched=True)
        world.run_until(lambda: process.is_dead)
        assert strays(node) == []
        left = {path: data for path, data in files.items() if "-delete" not in path}
        assert {path: data for path, data in copy_of(node.host.disk).items() if path in left} == left


def test_a_directory_that_is_no_partition_is_left_alone() -> None:
    with World("backup") as world:
        node = SimBroker(world, SETTINGS)
        put(node.host.disk, scene().files | {"backup-2026/": b"", "backup-2026/notes.txt": b"mine"})
        node.start()
        world.run(100_000)
        assert node.host.disk.content("backup-2026/notes.txt") == b"mine"
        assert strays(node) == []
