"""Rebuilding metadata from what is left: every topic and record is restored, and no id or epoch is reused."""

from __future__ import annotations

import pytest

from broker.acl_session import SECURED, acl, login
from broker.clusters import create
from broker.damaging import METADATA, METADATA_LOG, Files, Scene, copy_of, flipped, outcome, put, scene
from broker.session import TOPIC, Session, batch, is_recovered
from penstock.acls import acl_id
from penstock.broker.quorum.metadata_recovery import RecoveryPlan, RecoveryRefused, carry_out, finish, plan
from penstock.broker.starting import StartRefused
from penstock.metadata import CONSUMER_OFFSETS
from penstock.metadata.features import bootstrap_values
from penstock.metadata.records import acl_record
from penstock.metadata.security_level import level_record
from penstock.raft import BOOTSTRAP_SNAPSHOT, Voter, VoterSet, snapshot_batches
from penstock.sim import SimRuntime, World
from penstock.sim.broker import SimBroker
from penstock.sim.cluster import SimCluster
from penstock.sim.runtime import SimulatedCrash
from penstock.wire.acls import Operation, ResourceKind
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.metadata import MetadataRequest
from penstock.wire.messages.metadata_records import encode_metadata_record

MARKER = f"{METADATA}/recovered.json"
SNAPSHOT = f"{METADATA}/00000000000000000000-0000000000.checkpoint"


def recovered(files: Files, *undelete: str, then: str = "recovery") -> tuple[RecoveryPlan, Files]:
    """Recover these files; returns the files afterwards."""
    with World(then) as world:
        host = world.host("broker")
        put(host.disk, files)

        async def recover(runtime: SimRuntime) -> RecoveryPlan:
            found = plan(runtime.disk, runtime.uuid, undelete)
            assert copy_of(host.disk) == files, "a plan changes nothing"
            await carry_out(runtime, found)
            return found

        found = world.execute(recover, host="broker")
        return found, copy_of(host.disk)


def finished(files: Files) -> Files | None:
    """Finish a recovery that was interrupted before its last step; None if it was not."""
    with World("finish") as world:
        host = world.host("broker")
        put(host.disk, files)
        return copy_of(host.disk) if world.execute(finish, host="broker") else None


def without_metadata(files: Files) -> Files:
    return {path: data for path, data in files.items() if not path.startswith(f"{METADATA}/") or path[-1] == "/"}


def damaged(found: Scene, what: str) -> Files:
    files = dict(found.files)
    log = files[METADATA_LOG]
    match what:
        case "a flipped bit":
            files[METADATA_LOG] = flipped(log, 363, 0)
        case "no log":
            del files[METADATA_LOG]
        case "zeros":
            files[METADATA_LOG] = bytes(len(log))
        case "nothing left":
            files = without_metadata(files)
        case "no snapshot":
            del files[SNAPSHOT]
        case "a torn quorum-state":
            files[f"{METADATA}/quorum-state"] = files[f"{METADATA}/quorum-state"][:20]
    return files


DAMAGES = ["a flipped bit", "no log", "zeros", "nothing left", "no snapshot", "a torn quorum-state"]


@pytest.mark.parametrize("stop", ["kill", "clean"])
@pytest.mark.parametrize("what", DAMAGES)
def test_a_recovery_restores_every_topic_and_record(what: str, stop: str) -> None:
    found = scene(stop=stop)
    files = damaged(found, what)
    assert outcome(found, files, what).startswith("refused")
    _, after = recovered(files)
    assert outcome(found, after, f"{what}, recovered") == "served"
    assert after["meta.properties"] == found.files["meta.properties"]


@pytest.mark.parametrize("position", range(5, 2400, 211))
def test_a_recovery_uses_all_intact_parts_of_the_log(position: int) -> None:
    found = scene()
    log = found.files[METADATA_LOG]
    files = found.files | {METADATA_LOG: flipped(log, position % len(log), 3)}
    recovery, after = recovered(files)
    assert outcome(found, after, f"byte {position}, recovered") == "served"
    known = [one for one in recovery.topics if one.is_known]
    for topic in known:
        assert recovery.image.config(TOPIC, topic.topic.name) in ({"retention.ms": "86400000"}, {})


def test_epochs_and_producer_ids_lie_above_all_that_the_logs_contain() -> None:
    with World("ids") as world:
        node = SimBroker(world)
        node.start()
        used: list[int] = []

        async def fill(runtime: SimRuntime) -> None:
            s = await Session.open(runtime, node)
            await s.create("t")
            used.append(await s.producer_id())
            records = batch(b"one", producer_id=used[0], epoch=0, sequence=0)
            assert (await s.produce("t", records=records)).error_code == 0
            strange = batch(b"two", producer_id=123_456, epoch=0, sequence=0)
            assert (await s.produce("t", records=strange)).error_code == 0

        for _ in range(3):
            world.run(100)
            if not used:
                world.execute(fill)
            node.restart()
        log = node.served.manager.table.by_name[b"t"][0].log
        assert log is not None
        before = log.epoch
        node.host.kill()
        files = copy_of(node.host.disk)
    _, after = recovered(without_metadata(files))
    with World("ids again") as world:
        node = SimBroker(world)
        put(node.host.disk, after)
        node.start()

        async def look(runtime: SimRuntime) -> None:
            s = await Session.open(runtime, node)
            await s.until(lambda: is_recovered(node))
            assert await s.values("t") == [b"one", b"two"]
            assert await s.producer_id() > 123_456
            # Who was there before goes on: its sequence is known from the log.
            records = batch(b"three", producer_id=used[0], epoch=0, sequence=1)
            assert (await s.produce("t", records=records)).error_code == 0

        world.execute(look)
        log = node.served.manager.table.by_name[b"t"][0].log
        assert log is not None
        assert log.epoch > before


def test_a_recovery_interrupted_at_any_point_can_be_repeated() -> None:
    found = scene()
    files = damaged(found, "a flipped bit")
    for operation in range(1, 200):
        with World(f"recovery {operation}") as world:
            host = world.host("broker")
            put(host.disk, files)
            host.disk.crash_after(operation)

            async def recover(runtime: SimRuntime) -> None:
                await carry_out(runtime, plan(runtime.disk, runtime.uuid))

            process = host.start(recover)
            process.is_watched = True
            world.run_until(lambda process=process: process.is_dead)
            if process.exit is None or not isinstance(process.exit.error, SimulatedCrash):
                assert operation > 10
                return
            host.power_loss()
            left = copy_of(host.disk)
        if outcome(found, left, f"interrupted at {operation}") != "served":
            after = finished(left) or recovered(left)[1]
            assert outcome(found, after, f"recovered after {operation}") == "served"
    raise AssertionError("it never came to its end")


def test_a_topic_that_was_deleted_stays_deleted_unless_it_is_asked_for() -> None:
    found = scene()
    with World("deleted") as world:
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
    # As if it had been set aside, and was restored.
    after |= {path: data for path, data in found.files.items() if path.startswith("orders-")}
    recovery, _ = recovered(after)
    assert not recovery.is_needed
    assert sorted(recovery.aside) == ["orders-0", "orders-1"]
    assert outcome(found, recovered(after, "orders")[1], "undeleted") == "served"


def test_a_node_with_other_voters_is_not_recovered_by_itself() -> None:
    found = scene()
    voters = VoterSet.of([Voter(1, bytes(16)), Voter(2, bytes(16))])
    snapshot = b"".join(snapshot_batches(BOOTSTRAP_SNAPSHOT, voters, [], timestamp_ms=0))
    files = damaged(found, "no log") | {SNAPSHOT: snapshot}
    with pytest.raises(RecoveryRefused, match="nodes 2 are also voters"):
        recovered(files)


def test_a_recovered_cluster_is_closed_until_its_operator_has_checked_the_acls() -> None:
    """An ACL that was lost may have been a DENY: what is left must not decide by itself."""
    reading = acl(Operation.READ, ResourceKind.TOPIC, "orders")
    records = [level_record(), acl_record(acl_id(reading), reading)]
    values = [*bootstrap_values(), *map(encode_metadata_record, records)]
    snapshot = b"".join(snapshot_batches(BOOTSTRAP_SNAPSHOT, VoterSet(), values, timestamp_ms=0))
    found, after = recovered(damaged(scene(), "no log") | {SNAPSHOT: snapshot})
    assert list(found.image.acls.values()) == [reading]
    assert any("ACLs from intact records are kept (1)" in note for note in found.notes)
    with World("closed") as world:
        node = SimBroker(world, SECURED)
        put(node.host.disk, after)
        node.start()
        assert node.events.named("access is closed")

        async def seen_by(runtime: SimRuntime) -> dict[str, int]:
            users = {user: await login(runtime, node, user) for user in ("alice", "ANONYMOUS")}
            return {u: len((await c.call(MetadataRequest(topics=None), 12)).topics) for u, c in users.items()}

        assert world.execute(seen_by) == {"alice": 0, "ANONYMOUS": 2}
        node.stop()
        files = copy_of(node.host.disk)
        del files[MARKER]
    with World("opened") as world:
        node = SimBroker(world, SECURED)
        put(node.host.disk, files)
        node.start()
        assert world.execute(seen_by) == {"alice": 1, "ANONYMOUS": 2}


def test_topics_whose_settings_are_lost_keep_everything() -> None:
    found = scene()
    files = found.files | {METADATA_LOG: bytes(len(found.files[METADATA_LOG]))}
    recovery, _ = recovered(files)
    assert recovery.topics_without_configuration
    for name in recovery.topics_without_configuration:
        assert recovery.image.config(TOPIC, name) == {
            "cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1",
        }  # fmt: skip


def test_committed_offsets_are_compacted_and_not_deleted_after_a_recovery() -> None:
    with World("offsets") as world:
        node = SimBroker(world, {"offsets.topic.num.partitions": "1"})
        node.start()

        async def use_groups(runtime: SimRuntime) -> None:
            s = await Session.open(runtime, node)
            await s.create("t")
            await s.client.send(FindCoordinatorRequest(coordinator_keys=["g"]), 4)

        world.execute(use_groups)
        node.host.kill()
        files = copy_of(node.host.disk)
    recovery, _ = recovered(files | {METADATA_LOG: bytes(len(files[METADATA_LOG]))})
    assert recovery.image.config(TOPIC, CONSUMER_OFFSETS)["cleanup.policy"] == "compact"


@pytest.mark.parametrize("roles", [("broker,controller", "broker", "broker"), ("controller", "broker", "broker")])
def test_metadata_that_other_brokers_follow_is_not_rebuilt(roles: tuple[str, ...]) -> None:
    """The other brokers would remove the logs of topics that the rebuilt metadata lacks."""
    with World(1) as world:
        cluster = SimCluster(world, 3, {"min.insync.replicas": "2"}, roles=list(roles))
        cluster.start()
        create(cluster, "t", replication_factor=2, at=2)
        cluster.await_images()
        world.run(3_000)
        one = cluster.node(1)
        one.crash()
        files = copy_of(one.host.disk)
    damaged_log = flipped(files[METADATA_LOG], len(files[METADATA_LOG]) - 40, 0)
    with pytest.raises(RecoveryRefused, match="brokers 2, 3 have partitions or were registered"):
        recovered(files | {METADATA_LOG: damaged_log})


def test_an_owner_without_checksum_and_with_unknown_topic_counts_as_bit_rot() -> None:
    """The format of an earlier release, with one changed letter in the topic id of one partition."""
    found = scene()
    files = dict(found.files)
    for path in files:
        if path.endswith("partition.metadata"):
            files[path] = files[path].partition(b"\ncrc32c")[0]
    path = "orders-1/partition.metadata"
    right = files[path].decode().partition("topic_id: ")[2]
    wrong = ("a" if right[2] != "a" else "b").join((right[:2], right[3:]))
    files[path] = files[path].replace(right.encode(), wrong.encode())
    recovery, after = recovered(files)
    assert recovery.owners == {"orders-1": right}
    assert not recovery.aside
    assert outcome(found, after, "recovered") == "served"


# ---- what later starts make of recovered metadata


def test_every_start_warns_of_recovered_metadata_and_lost_topic_settings() -> None:
    _, after = recovered(without_metadata(scene().files))
    with World("told") as world:
        node = SimBroker(world)
        put(node.host.disk, after)
        node.start()
        assert node.events.said("metadata was recovered", "topics_that_keep_everything") == ["logs,orders"]
        assert node.events.said("metadata was recovered", "acls") == ["unknown"]

        async def configure(runtime: SimRuntime) -> None:
            s = await Session.open(runtime, node)
            assert (await s.alter("orders", retention_ms="1000")).error_code == 0

        world.execute(configure)
        node.restart()
        assert node.events.said("metadata was recovered", "topics_that_keep_everything")[-1] == "logs"


@pytest.mark.parametrize("data", [b"", b"{", b"{}", b"\0" * 10])
def test_a_damaged_recovery_marker_prevents_the_start_with_a_clear_message(data: bytes) -> None:
    _, after = recovered(without_metadata(scene().files))
    assert "recovered.json is damaged" in refusal(after | {MARKER: data})


def refusal(files: Files) -> str:
    """Why a start from these files is refused; empty if it is not."""
    with World("refusal") as world:
        node = SimBroker(world)
        put(node.host.disk, files)
        process = node.begin(watched=True)
        world.run_until(lambda: node.ready or process.is_dead)
        if node.ready:
            return ""
        with pytest.raises(StartRefused) as refused:
            process.result()
        return str(refused.value)
