"""Bugs of the kinds that a fuzzer is for, to be switched on one at a time: each must be found within one round."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from penstock.broker.net.connection import Connection
from penstock.broker.produce.preparing import Allowance, PartitionQueue, Preparation
from penstock.broker.replicas.partition import Partition
from penstock.broker.service import Service
from penstock.sim import runtime as sim_runtime
from penstock.wire import valid
from penstock.wire.errors import KafkaError

KEPT_BYTES = 256 << 10


def handler_raises(patch: pytest.MonkeyPatch) -> None:
    """A handler lets an exception escape that is no answer to anything."""
    serve = Service._serve_message

    def careless(self: Service, api: Any, *rest: Any) -> None:
        if api.name == "DescribeGroups":
            raise KeyError("group")
        serve(self, api, *rest)

    patch.setattr(Service, "_serve_message", careless)


def refused_frame_ends_the_node(patch: pytest.MonkeyPatch) -> None:
    """What one peer sends is taken for a broken invariant."""

    def fatal(self: Service, connection: Connection, reason: str) -> None:
        self._runtime.fatal(reason, None)

    patch.setattr(Service, "refused", fatal)


def refused_frames_are_kept(patch: pytest.MonkeyPatch) -> None:
    """Memory that nobody gives back."""
    kept = []
    refused = Service.refused

    def hoarding(self: Service, connection: Connection, reason: str) -> None:
        kept.append(bytearray(KEPT_BYTES))
        refused(self, connection, reason)

    patch.setattr(Service, "refused", hoarding)


def working_flag_stays_set(patch: pytest.MonkeyPatch) -> None:
    """A batch that is refused leaves its partition marked as working: whatever comes behind it waits for ever."""

    async def stuck(self: Preparation, partition: Partition, queue: PartitionQueue) -> None:
        while queue.waiting:
            waiting = queue.waiting.popleft()
            try:
                waiting.done(await self._append(partition, queue, waiting))
            except KafkaError as error:
                waiting.done(error)
                return
        queue.is_working = False

    patch.setattr(Preparation, "_work", stuck)


def decompression_has_no_budget(patch: pytest.MonkeyPatch) -> None:
    """Each batch of a request may unfold to all that the broker has, whatever the others took."""
    patch.setattr(Preparation, "allowance", lambda self: Allowance(1 << 50))


def hosts_reach_the_resolver(patch: pytest.MonkeyPatch) -> None:
    """Hosts are not looked at where they enter, and what the resolver makes of them surprises whoever connects."""
    patch.setattr(valid, "_host_problem", lambda host: "")
    patch.setattr(sim_runtime, "only_connection_errors", lambda host, port: nullcontext())
