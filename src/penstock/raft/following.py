"""A replica that does not lead: it fetches from the leader, or searches for one.

At most one request is in flight. A fetch is sent only when the whole log is durable, because its offset acknowledges
everything before it. If the leader no longer has the records needed it names a snapshot, which is fetched in chunks and
replaces the whole log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.raft import messages as m
from penstock.raft.types import (
    ANY_BOOTSTRAP_SERVER,
    NO_NODE,
    UNKNOWN_OFFSET,
    OffsetAndEpoch,
    Role,
)
from penstock.wire.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.raft.core import RaftCore

FOREVER = float("inf")
NO_REQUEST = 0
SNAPSHOT_BYTES_MAX = 2 << 30
"""The snapshot is held in memory until it is complete."""


class Following:
    """The pull side of a core; idle while the replica leads or stands for election."""

    __slots__ = (
        "_core",
        "_fetched_offset",
        "_next_at_ms",
        "_request_deadline_ms",
        "_request_id",
        "download",
        "download_position",
        "installing",
    )

    def __init__(self, core: RaftCore) -> None:
        self._core = core
        self._request_id = NO_REQUEST
        self._request_deadline_ms = FOREVER
        self._next_at_ms = 0.0
        self._fetched_offset = UNKNOWN_OFFSET
        self.download: OffsetAndEpoch | None = None
        self.download_position = 0
        self.installing: OffsetAndEpoch | None = None

    def restart(self, now_ms: float) -> None:
        """Forgets the request in flight, because the role, the epoch or the leader changed."""
        self._request_id = NO_REQUEST
        self._next_at_ms = now_ms
        self.download = None

    # -- asking ------------------------------------------------------------------------------------------------------

    def pump(self, now_ms: float) -> None:
        """Sends the next request if it is due and nothing prevents it."""
        core = self._core
        idle = self._request_id == NO_REQUEST and core.role is not Role.CANDIDATE and self.installing is None
        if not idle or now_ms < self._next_at_ms or core.synced_end != core.log.end_offset:
            return
        target = self._target()
        if target is None:
            self._next_at_ms = now_ms + core.config.probe_interval_ms
            return
        self._request_id = core.next_request_id()
        self._request_deadline_ms = now_ms + core.config.request_timeout_ms
        if self.download is not None:
            core.send(
                m.FetchSnapshotRequest(
                    core.id,
                    target,
                    self._request_id,
                    core.key,
                    core.epoch,
                    self.download,
                    self.download_position,
                    core.config.snapshot_chunk_bytes_max,
                )
            )
            return
        self._fetched_offset = core.log.end_offset
        core.send(
            m.FetchRequest(
                core.id,
                target,
                self._request_id,
                core.key,
                core.epoch,
                core.log.end_offset,
                core.log.last_epoch,
                core.high_watermark,
                core.config.fetch_max_wait_ms,
            )
        )

    def _target(self) -> int | None:
        core = self._core
        if core.leader_id != NO_NODE:
            return core.leader_id
        others = [voter.id for voter in core.voter_set.voters if voter.id != core.id]
        if others:
            return others[core.random_below(len(others))]
        # The only voter has no one to ask; a replica that knows no voters asks the configured bootstrap servers.
        return ANY_BOOTSTRAP_SERVER if core.key not in core.voter_set else None

    # -- answers -----------------------------------------------------------------------------------------------------

    def on_fetch_response(self, response: m.FetchResponse, now_ms: float) -> None:
        if response.request_id != self._request_id:
            return
        core = self._core
        self._answered(now_ms)
        if self._learn(response, now_ms):
            return
        if response.error == ErrorCode.NOT_LEADER_OR_FOLLOWER and response.source == core.leader_id:
            # The leader itself says that it no longer leads, and no other node leads this epoch. Observers are told in
            # no other way, and this one may be a voter without knowing it yet, so the next election may need its vote.
            core.leader_left(now_ms)
        if response.error != ErrorCode.NONE or not self._from_leader(response):
            self._retry_later(now_ms)
            return
        core.heard_from_leader(now_ms)
        if response.snapshot is not None:
            if response.snapshot.offset < core.high_watermark or response.snapshot.epoch > core.epoch:
                self._contradicted(
                    f"node {response.source} offers a snapshot that ends at {response.snapshot.offset}, but the log is "
                    f"committed up to {core.high_watermark}",
                    now_ms,
                )
                return
            self.download = response.snapshot
            self.download_position = 0
        elif response.diverging is not None:
            self._truncate(response, response.diverging, now_ms)
        else:
            for batch in response.batches:
                follows_on = batch.base_offset == core.log.end_offset and batch.count > 0
                if not follows_on or not core.log.last_epoch <= batch.epoch <= core.epoch:
                    self._contradicted(
                        f"node {response.source} answered a fetch from {core.log.end_offset} with a batch at "
                        f"{batch.base_offset} of epoch {batch.epoch} in epoch {core.epoch}",
                        now_ms,
                    )
                    return
                core.append(batch)
            core.commit_to(min(response.high_watermark, core.log.end_offset))
            if core.hard.suspect and 0 <= response.high_watermark <= self._fetched_offset:
                core.trust_log()

    def _truncate(self, response: m.FetchResponse, diverging: OffsetAndEpoch, now_ms: float) -> None:
        """Truncates records that the leader lacks. Each round goes back at least one epoch, so it terminates."""
        core = self._core
        common = core.log.end_offset_for_epoch(diverging.epoch)
        offset = min(common.offset, diverging.offset)
        if offset < core.high_watermark:
            self._contradicted(
                f"node {response.source} asks node {core.id} to truncate to {offset}, below its high watermark "
                f"{core.high_watermark}: committed records would be lost. Was a voter's data directory replaced by an "
                "older copy?",
                now_ms,
            )
        elif offset < core.log.end_offset:
            core.truncate_to(offset)
        else:
            self._retry_later(now_ms)

    def _contradicted(self, what: str, now_ms: float) -> None:
        self._core.contradiction(what)
        self._retry_later(now_ms)

    def on_fetch_snapshot_response(self, response: m.FetchSnapshotResponse, now_ms: float) -> None:
        if response.request_id != self._request_id:
            return
        core = self._core
        self._answered(now_ms)
        if self._learn(response, now_ms):
            return
        expected = response.snapshot == self.download and response.position == self.download_position
        if response.error != ErrorCode.NONE or not self._from_leader(response) or not expected:
            # The leader has a newer snapshot, or no longer leads: start again with a fetch.
            self.download = None
            self._retry_later(now_ms)
            return
        core.heard_from_leader(now_ms)
        whole = response.position + len(response.data) >= response.size
        if response.size > SNAPSHOT_BYTES_MAX or not (response.data or whole):
            self.download = None
            self._contradicted(
                f"node {response.source} sends {len(response.data)} bytes of a snapshot of {response.size}", now_ms
            )
            return
        core.ready.snapshot_chunk = m.SnapshotChunk(response.snapshot, response.position, response.data)
        self.download_position += len(response.data)
        if whole:
            self.installing, self.download = self.download, None
            core.ready.install = self.installing

    def on_installed(self, event: m.SnapshotInstalled, now_ms: float) -> None:
        core = self._core
        assert event.snapshot == self.installing
        assert event.snapshot.offset >= core.high_watermark, "a snapshot never removes committed records"
        self.installing = None
        core.log.snapshot_installed(event.snapshot, event.voter_set)
        core.synced_end = event.snapshot.offset
        core.commit_to(event.snapshot.offset)
        self._next_at_ms = now_ms

    def on_refused(self, event: m.SnapshotRefused, now_ms: float) -> None:
        assert event.snapshot == self.installing
        self.installing = None
        self._contradicted(f"the bytes fetched as snapshot {event.snapshot} are not a valid snapshot", now_ms)

    def on_request_failed(self, request_id: int, now_ms: float) -> None:
        if request_id == self._request_id:
            self._answered(now_ms)
            self._retry_later(now_ms)

    # -- timers ------------------------------------------------------------------------------------------------------

    def check_timers(self, now_ms: float) -> None:
        if self._request_id != NO_REQUEST and now_ms >= self._request_deadline_ms:
            self.on_request_failed(self._request_id, now_ms)

    def next_deadline_ms(self) -> float:
        core = self._core
        if self._request_id != NO_REQUEST:
            return self._request_deadline_ms
        waits = core.role is Role.CANDIDATE or self.installing is not None or core.synced_end != core.log.end_offset
        return FOREVER if waits else self._next_at_ms

    def grant_grace(self, until_ms: float) -> None:
        self._request_deadline_ms = max(self._request_deadline_ms, until_ms)

    def _learn(self, response: m.FetchResponse | m.FetchSnapshotResponse, now_ms: float) -> bool:
        """Takes the leader from an error response; returns whether it is new, so that it can be asked at once."""
        known = (self._core.epoch, self._core.leader_id)
        self._core.learn(response.epoch, response.leader_id, now_ms)
        return response.error != ErrorCode.NONE and known != (self._core.epoch, self._core.leader_id)

    def _from_leader(self, response: m.FetchResponse | m.FetchSnapshotResponse) -> bool:
        return response.epoch == self._core.epoch and response.source == self._core.leader_id

    def _answered(self, now_ms: float) -> None:
        self._request_id = NO_REQUEST
        self._next_at_ms = now_ms

    def _retry_later(self, now_ms: float) -> None:
        config = self._core.config
        searching = self._core.leader_id == NO_NODE
        self._next_at_ms = now_ms + (config.probe_interval_ms if searching else config.retry_backoff_ms)
