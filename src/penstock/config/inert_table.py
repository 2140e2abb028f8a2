"""Broker properties that Kafka lets operators change at run time but that have no effect here.

They size or tune mechanisms that this broker does not have: thread pools, tiered storage, Kerberos logins. Kafka
accepts them even where the mechanism is not used, so runbooks set them routinely; refusing them would break runbooks
without protecting anyone. So they are checked like other properties, stored, described (with a note that they have no
effect) and reported by a warning in the log, at start and when they change.

Properties that promise protection (`ssl.*`, `sasl.jaas.config`, `sasl.enabled.mechanisms`), place data
(`cordoned.log.dirs`) or load code are not in this table: see `NOT_YET` in `unserved.py`.
"""

from __future__ import annotations

from penstock.config.broker_table import BROKER
from penstock.config.definitions import (
    INT64_MAX,
    Definition,
    Importance,
    Kind,
    UpdateMode,
    Validator,
    Value,
    at_least,
)
from penstock.config.unserved import (
    COMPACTOR,
    COORDINATOR_LOOP,
    DISK_THREADS,
    LOOP,
    METRICS,
    SASL,
    SHARE,
    STREAMS,
    TIERED,
)

BOOLEAN, DOUBLE, INT, LIST, LONG, SHORT, STRING = (
    Kind.BOOLEAN, Kind.DOUBLE, Kind.INT, Kind.LIST, Kind.LONG, Kind.SHORT, Kind.STRING,
)  # fmt: skip
CLUSTER_WIDE, PER_BROKER = UpdateMode.CLUSTER_WIDE, UpdateMode.PER_BROKER

CACHED_BUFFER_BYTES_MIN = 512 * 1024
CACHED_BUFFER_BYTES_DEFAULT = 1_048_588
POSITIVE = at_least(1)

Row = tuple[str, Kind, Value, Validator | None]

_INERT: tuple[tuple[str, UpdateMode, tuple[Row, ...]], ...] = (
    (DISK_THREADS, CLUSTER_WIDE, (("background.threads", INT, 10, POSITIVE),)),
    (LOOP, CLUSTER_WIDE, (("num.network.threads", INT, 3, POSITIVE),)),
    (
        "a follower uses one fetch session per leader for any number of partitions",
        CLUSTER_WIDE,
        (("num.replica.fetchers", INT, 1, POSITIVE),),
    ),
    (
        COMPACTOR,
        CLUSTER_WIDE,
        (("log.cleaner.io.buffer.size", INT, 524_288, at_least(0)), ("log.cleaner.threads", INT, 1, at_least(0))),
    ),
    (METRICS, CLUSTER_WIDE, (("metric.reporters", LIST, ("org.apache.kafka.common.metrics.JmxReporter",), None),)),
    (
        COORDINATOR_LOOP,
        CLUSTER_WIDE,
        tuple(
            (
                f"{kind}.coordinator.cached.buffer.max.bytes",
                INT,
                CACHED_BUFFER_BYTES_DEFAULT,
                at_least(CACHED_BUFFER_BYTES_MIN),
            )
            for kind in ("group", "share")
        ),
    ),
    (SHARE, CLUSTER_WIDE, (("group.share.assignment.interval.ms", INT, 1_000, at_least(0)),)),
    (STREAMS, CLUSTER_WIDE, (("group.streams.assignment.interval.ms", INT, 1_000, at_least(0)),)),
    (
        "partition leaders always verify: otherwise a late batch could hold back readers of committed records for ever",
        CLUSTER_WIDE,
        (("transaction.partition.verification.enable", BOOLEAN, True, None),),
    ),
    (
        "a broker has one data directory, so replicas never move between directories",
        CLUSTER_WIDE,
        (("replica.alter.log.dirs.io.max.bytes.per.second", LONG, INT64_MAX, at_least(0)),),
    ),
    (
        "files grow as they are written, which modern file systems handle well",
        CLUSTER_WIDE,
        (("log.preallocate", BOOLEAN, False, None),),
    ),
    (
        TIERED,
        CLUSTER_WIDE,
        (
            ("follower.fetch.last.tiered.offset.enable", BOOLEAN, False, None),
            ("log.local.retention.bytes", LONG, -2, at_least(-2)),
            ("log.local.retention.ms", LONG, -2, at_least(-2)),
            ("remote.fetch.max.wait.ms", INT, 500, POSITIVE),
            ("remote.list.offsets.request.timeout.ms", LONG, 30_000, POSITIVE),
            ("remote.log.index.file.cache.total.size.bytes", LONG, 1_073_741_824, POSITIVE),
            ("remote.log.manager.copier.thread.pool.size", INT, 10, POSITIVE),
            ("remote.log.manager.copy.max.bytes.per.second", LONG, INT64_MAX, POSITIVE),
            ("remote.log.manager.expiration.thread.pool.size", INT, 10, POSITIVE),
            ("remote.log.manager.fetch.max.bytes.per.second", LONG, INT64_MAX, POSITIVE),
            ("remote.log.manager.follower.thread.pool.size", INT, 2, POSITIVE),
            ("remote.log.reader.threads", INT, 10, POSITIVE),
        ),
    ),
    (
        SASL,
        PER_BROKER,
        (
            ("sasl.kerberos.kinit.cmd", STRING, "/usr/bin/kinit", None),
            ("sasl.kerberos.min.time.before.relogin", LONG, 60_000, None),
            ("sasl.kerberos.principal.to.local.rules", LIST, ("DEFAULT",), None),
            ("sasl.kerberos.service.name", STRING, None, None),
            ("sasl.kerberos.ticket.renew.jitter", DOUBLE, 0.05, None),
            ("sasl.kerberos.ticket.renew.window.factor", DOUBLE, 0.8, None),
            ("sasl.login.refresh.buffer.seconds", SHORT, 300, None),
            ("sasl.login.refresh.min.period.seconds", SHORT, 60, None),
            ("sasl.login.refresh.window.factor", DOUBLE, 0.8, None),
            ("sasl.login.refresh.window.jitter", DOUBLE, 0.05, None),
        ),
    ),
)

INERT: dict[str, Definition] = {
    name: Definition(
        name,
        kind,
        default,
        validator,
        f"No effect here: {reason}.",
        mode=mode,
        importance=Importance.LOW,
        no_effect=reason,
    )
    for reason, mode, rows in _INERT
    for name, kind, default, validator in rows
}

SETTABLE: dict[str, Definition] = {**BROKER, **INERT}
"""Every property that a broker accepts, with or without effect."""
