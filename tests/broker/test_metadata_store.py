"""How a node treats the metadata that it finds on its disk."""

from __future__ import annotations

import pytest

from broker.clusters import a_cluster
from penstock.broker.starting import StartRefused
from penstock.raft import OffsetAndEpoch, VoterSet, snapshot_batches, snapshot_name
from penstock.sim import SimRuntime

LOG = "__cluster_metadata-0/00000000000000000000.log"
UNKNOWN_RECORD = b"\x01\xe7\x07\x00"
"""Framed as all are; of type 999."""


def test_a_snapshot_of_a_newer_release_prevents_the_start_and_changes_nothing() -> None:
    newer = OffsetAndEpoch(10_000, 9)
    data = b"".join(snapshot_batches(newer, VoterSet(), [UNKNOWN_RECORD], timestamp_ms=0))

    async def upgrade(runtime: SimRuntime) -> None:
        await runtime.disk.replace_bytes(f"__cluster_metadata-0/{snapshot_name(newer)}", data)

    with a_cluster() as cluster:
        node = next(node for node in cluster.nodes if not node.is_active_controller)
        node.stop()
        cluster.world.execute(upgrade, host=node.host.name)
        before = node.host.disk.content(LOG)
        process = node.begin(watched=True)
        cluster.world.run_until(lambda: process.is_dead, 10_000)
        with pytest.raises(StartRefused, match=r"checkpoint: .* unknown type 999: written by a newer release"):
            process.result()
        assert node.host.disk.content(LOG) == before
