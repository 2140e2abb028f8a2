"""The audit log: who did what, from where, and which rule allowed or denied it. One JSON object per line.

Three kinds of events:

- `access`: a decision of the authoriser. Every denial, every allowed operation that changes something (Create, Delete,
  Alter, AlterConfigs …), and with `penstock.audit.data.access` every other one too;
- `request`: an administrative request was answered, with the resources that it named and the errors in its answer;
- `login`: a client logged in, or failed to.

A request that a broker forwards is recorded by the active controller, which decides it, under the name and address of
the client. Records have names and numbers only: no values of configurations, no credentials, no record data.

The event loop never waits for the disk. Events are collected in memory, identical ones are counted, and every 100 ms a
thread appends and syncs them (`file`). If the disk is too slow, or full, events beyond `PENDING_MAX` are dropped and
counted; the next line that is written says how many. A crash loses the events of the last moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.broker.audit.file import AuditFile
from penstock.broker.audit.naming import errors_in, resources_of
from penstock.broker.net.access import ANONYMOUS
from penstock.telemetry.samples import Sample, counter, gauge
from penstock.wire.acls import Operation, ResourceKind
from penstock.wire.apis import ApiKey

if TYPE_CHECKING:
    from penstock.broker.net.request import Request
    from penstock.config.access_table import Audit as AuditConfig
    from penstock.runtime import Runtime
    from penstock.runtime.eventlog import EventLog
    from penstock.wire.codec import Message

FLUSH_MS: Final = 100
PENDING_MAX: Final = 10_000
"""Different events that wait to be written."""
LINES_PER_WRITE: Final = 2_000
"""Events that are encoded at a time: some 5 ms of the loop."""
TEXT_LENGTH_MAX: Final = 256
"""Names come from clients; longer ones are cut."""

CHANGING: Final = frozenset(
    {
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.ALTER_CONFIGS,
        Operation.CREATE_TOKENS,
    }
)
"""Operations that are always recorded."""

ADMINISTRATIVE: Final = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.DELETE_RECORDS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DELETE_GROUPS,
        ApiKey.OFFSET_DELETE,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.UPDATE_FEATURES,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
    }
)
"""APIs whose every request is recorded."""

Event = tuple[tuple[str, Any], ...]
"""Fields in order, hashable, so that identical events can be counted."""


class AuditLog:
    def __init__(self, runtime: Runtime, events: EventLog, config: AuditConfig) -> None:
        self._runtime = runtime
        self._events = events
        self._data_access = config.penstock_audit_data_access
        self._file = AuditFile(runtime, config.penstock_audit_file_max_bytes, config.penstock_audit_file_max_count)
        self._pending: dict[Event, list[int]] = {}
        """Event → [the time of the first, how many]."""
        self._scheduled = False
        self._writing = False
        self._untold = 0
        """Dropped events that no line has told of yet."""
        self.recorded = 0
        self.dropped = 0
        self.failures = 0

    # ---- events

    def access(self, request: Request, operation: Operation, kind: ResourceKind, name: str, allowed: bool) -> None:
        if allowed and (operation not in CHANGING or request.row.key is ApiKey.DESCRIBE_CLUSTER):
            # Nodes are never recorded for what they do all the time.
            is_of_nodes = operation is Operation.CLUSTER_ACTION or request.row.key is ApiKey.DESCRIBE_CLUSTER
            if is_of_nodes or not self._data_access:
                return
        authorizer = request.gate.authorizer
        assert authorizer is not None
        self._add(
            (
                ("event", "access"),
                *_origin(request),
                ("operation", operation.name),
                ("resource_type", kind.name),
                ("resource", _cut(name)),
                ("allowed", allowed),
                ("rule", _cut(authorizer.rule(request, operation, kind, name))),
            )
        )

    def answered(self, request: Request, response: Message) -> None:
        """An answer was made. Only those of administrative requests are recorded, at the node that decides them."""
        if request.row.key not in ADMINISTRATIVE or request.row.is_forwarded or request.client is request.gate.own:
            return
        assert request.body is not None
        names, more = resources_of(request.body)
        self._add(
            (
                ("event", "request"),
                *_origin(request),
                ("resources", tuple(_cut(name) for name in names)),
                *((("more_resources", more),) if more else ()),
                ("errors", errors_in(response)),
            )
        )

    def login(
        self, *, principal: str, host: str, listener: str, mechanism: str, succeeded: bool, reason: str = ""
    ) -> None:
        """A client authenticated, or failed to. `principal` is what it claimed to be; `reason` must hold no secret."""
        self._add(
            (
                ("event", "login"),
                ("principal", _cut(principal)),
                ("host", host),
                ("listener", listener),
                ("mechanism", _cut(mechanism)),
                ("allowed", succeeded),
                *((("rule", _cut(reason)),) if reason else ()),
            )
        )

    def _add(self, event: Event) -> None:
        self.recorded += 1
        known = self._pending.get(event)
        if known is not None:
            known[1] += 1
            return
        if len(self._pending) >= PENDING_MAX:
            self.dropped += 1
            self._untold += 1
            return
        self._pending[event] = [self._runtime.wall_ms(), 1]
        if not self._scheduled:
            self._scheduled = True
            self._runtime.call_later(FLUSH_MS, self._flush)

    # ---- writing

    def _flush(self) -> None:
        self._scheduled = False
        if self._writing or not self._pending:
            return  # `_write` looks again when it is done
        self._writing = True
        self._runtime.spawn(self._write(), "audit log")

    async def _write(self) -> None:
        try:
            while self._pending:
                data = b"".join(self._lines())
                try:
                    await self._file.append(data)
                except OSError as error:
                    lost = data.count(b"\n")
                    self.failures += 1
                    self.dropped += lost
                    self._untold += lost
                    self._events.limited("audit log not written", error=str(error), lost_events=lost)
        finally:
            self._writing = False

    def _lines(self) -> Iterator[bytes]:
        if self._untold:
            untold, self._untold = self._untold, 0
            yield _line(self._runtime.wall_ms(), (("event", "dropped"),), untold)
        for event in list(self._pending)[:LINES_PER_WRITE]:
            wall_ms, count = self._pending.pop(event)
            yield _line(wall_ms, event, count)

    async def close(self) -> None:
        """Write what is pending. Call it when no more requests are served."""
        while self._writing:
            await self._runtime.sleep(1)
        self._writing = True
        await self._write()

    # ---- metrics

    def samples(self) -> Iterable[Sample]:
        yield counter("penstock_audit_events_total", "Events for the audit log", self.recorded)
        yield counter("penstock_audit_events_dropped_total", "Audit events lost: slow or full disk", self.dropped)
        yield counter("penstock_audit_write_failures_total", "Failed writes of the audit log", self.failures)
        yield gauge("penstock_audit_events_pending", "Audit events that wait to be written", len(self._pending))


def _origin(request: Request) -> Event:
    connection = request.connection
    is_forwarded = connection is not None and connection.request.client is not request.client
    return (
        ("principal", str(request.principal or ANONYMOUS)[:TEXT_LENGTH_MAX]),
        ("host", request.host),
        ("listener", request.listener_info.listener or "CONTROLLER"),
        ("client_id", _cut(request.client_id)),
        ("api", request.row.name),
        *((("forwarded", True),) if is_forwarded else ()),
    )


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_LENGTH_MAX else text[: TEXT_LENGTH_MAX - 1] + "…"


def _line(wall_ms: int, event: Event, count: int) -> bytes:
    fields: dict[str, Any] = {"time_ms": wall_ms, **dict(event)}
    if count > 1 or fields["event"] == "dropped":
        fields["count"] = count
    if "errors" in fields:
        fields["errors"] = dict(fields["errors"])
    return msgspec.json.encode(fields) + b"\n"
