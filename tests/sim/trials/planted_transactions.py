"""Bugs of transactions, to be switched on one at a time in whole clusters: the trials must find each of them."""

from __future__ import annotations

import pytest

from penstock.broker.produce.preparing import Preparation, Question, Waiting
from penstock.broker.replicas.partition import Partition
from penstock.coordinators.groups.offsets import Offsets
from penstock.log.aborted import SegmentAborted
from penstock.log.appending import Writer
from penstock.log.core import LogCore
from penstock.log.producers import ProducerEntry, Verification
from penstock.log.recovery import Recovery


def old_marker_is_accepted(patch: pytest.MonkeyPatch) -> None:
    """A marker counts whatever its epochs are (KIP-1228)."""
    patch.setattr(ProducerEntry, "check_marker", lambda *_: None)


def nothing_is_verified(patch: pytest.MonkeyPatch) -> None:
    """A leader does not ask the coordinator whether a batch of version 1 belongs to an open transaction (KIP-890)."""
    verified = Preparation._verified

    async def hasty(
        self: Preparation, partition: Partition, waiting: Waiting, question: Question
    ) -> Verification | None:
        return await verified(self, partition, waiting, question) if question.batch.adds_partition else None

    patch.setattr(Preparation, "_verified", hasty)
    patch.setattr(Writer, "_check_verified", lambda *_: None)


def all_that_is_replicated_is_stable(patch: pytest.MonkeyPatch) -> None:
    """The last stable offset is the high watermark."""
    patch.setattr(LogCore, "last_stable_offset", lambda self, high_watermark: high_watermark)


def offsets_are_visible_early(patch: pytest.MonkeyPatch) -> None:
    """Offsets of a transaction take effect before it commits."""

    def put(self: Offsets, group_id: str, producer_id: int, record_offset: int, key: bytes, value: bytes) -> None:
        self.put_all(group_id, [(key, value)])

    patch.setattr(Offsets, "put_pending", put)


def aborted_index_is_lost(patch: pytest.MonkeyPatch) -> None:
    """A log that is opened again has forgotten which transactions were aborted."""
    init = SegmentAborted.__init__

    def forgetful(self: SegmentAborted, disk: object, directory: str, base_offset: int, cache: object, _: int) -> None:
        init(self, disk, directory, base_offset, cache, 0)  # type: ignore[arg-type]

    patch.setattr(SegmentAborted, "__init__", forgetful)
    patch.setattr(Recovery, "_store_aborted", lambda *_: None)
