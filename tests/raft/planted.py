"""Bugs that others really had, to be switched on one at a time: the simulator must find each of them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from penstock.raft import messages as m
from penstock.raft.core import RaftCore
from penstock.raft.leading import Leading
from penstock.raft.types import HardState
from penstock.sim.raft.cluster import Node


def acknowledge_before_sync(patch: pytest.MonkeyPatch) -> None:
    real = Node.sync

    def sync(self: Node) -> None:
        real(self)
        self.later(0.0, lambda: self.step(m.Persisted(self.disk.end)))

    patch.setattr(Node, "sync", sync)


def vote_not_synced(patch: pytest.MonkeyPatch) -> None:
    real = Node.start

    def start(self: Node) -> None:
        self.disk.hard = HardState(self.disk.hard.epoch)
        real(self)

    patch.setattr(Node, "start", start)


def two_voter_changes_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Leading, "_refuse_change", lambda self, operation_id: False)


def corrupt_minority_votes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RaftCore, "_may_vote", property(lambda self: self.following.installing is None))


def vote_for_a_shorter_log(patch: pytest.MonkeyPatch) -> None:
    real = RaftCore._grants

    def grants(self: RaftCore, request: m.VoteRequest, now_ms: float) -> bool:
        flattered = replace(request, last_epoch=self.log.last_epoch, last_offset=self.log.end_offset)
        return real(self, flattered, now_ms)

    patch.setattr(RaftCore, "_grants", grants)


def vote_for_a_wiped_voter(patch: pytest.MonkeyPatch) -> None:
    real = RaftCore._on_vote_request

    def on_vote_request(self: RaftCore, request: m.VoteRequest, now_ms: float) -> None:
        real(self, replace(request, voter=self.key), now_ms)

    patch.setattr(RaftCore, "_on_vote_request", on_vote_request)
