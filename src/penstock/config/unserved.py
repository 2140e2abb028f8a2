"""Kafka's broker properties that this broker does not support, and its response to each.

`NOT_YET` has properties of features that are not implemented yet or cannot exist here (Java classes). Kafka's default
is accepted because it requests nothing. Any other value is refused, because a silently ignored setting is worse than
a refused one.

`WITHOUT_MEANING` has properties of mechanisms that this broker does not have (thread pools, purgatories, ZooKeeper,
JMX). They change how Kafka works and not what it guarantees, so they are accepted with a warning that names the
alternative. `INERT` (`inert_table.py`) is the same for properties that Kafka also accepts at run time.
"""

from __future__ import annotations

from typing import NamedTuple

INT32_MAX_TEXT = "2147483647"
INT64_MAX_TEXT = "9223372036854775807"


class Planned(NamedTuple):
    """A property of which only the default is accepted."""

    default: str | None
    reason: str
    also: tuple[str, ...] = ()
    """Other accepted values, which a cluster of one satisfies anyway: those in Kafka's own `server.properties`."""


TRANSACTIONS = "transactions are not supported yet"
SHARE = "share groups are not supported yet"
_QUOTAS = "quotas on moves between directories are not supported: a broker has one directory"
_SECURITY = "it belongs to parts of TLS and SASL that are not supported yet: Java key stores, delegation tokens"
TIERED = "tiered storage is not supported yet"
SASL = "it tunes SASL logins, which are not supported yet"
_JAVA = "it names a Java class, which this broker cannot load"
STREAMS = "streams groups are not supported yet"

_NOT_YET: tuple[tuple[str, dict[str, str | None]], ...] = (
    (
        STREAMS,
        {
            "group.streams.heartbeat.interval.ms": "5000",
            "group.streams.initial.rebalance.delay.ms": "3000",
            "group.streams.max.assignment.interval.ms": "15000",
            "group.streams.max.heartbeat.interval.ms": "15000",
            "group.streams.max.session.timeout.ms": "60000",
            "group.streams.max.size": INT32_MAX_TEXT,
            "group.streams.max.standby.replicas": "2",
            "group.streams.min.assignment.interval.ms": "0",
            "group.streams.min.heartbeat.interval.ms": "5000",
            "group.streams.min.session.timeout.ms": "45000",
            "group.streams.num.standby.replicas": "0",
            "group.streams.session.timeout.ms": "45000",
        },
    ),
    (
        SHARE,
        {
            "group.share.assignors": "simple",
            "group.share.delivery.count.limit": "5",
            "group.share.heartbeat.interval.ms": "5000",
            "group.share.initialize.retry.interval.ms": "30000",
            "group.share.max.assignment.interval.ms": "15000",
            "group.share.max.delivery.count.limit": "10",
            "group.share.max.heartbeat.interval.ms": "15000",
            "group.share.max.partition.max.record.locks": "4000",
            "group.share.max.record.lock.duration.ms": "60000",
            "group.share.max.session.timeout.ms": "60000",
            "group.share.max.share.sessions": "2000",
            "group.share.max.size": "200",
            "group.share.min.assignment.interval.ms": "0",
            "group.share.min.delivery.count.limit": "2",
            "group.share.min.heartbeat.interval.ms": "5000",
            "group.share.min.partition.max.record.locks": "100",
            "group.share.min.record.lock.duration.ms": "15000",
            "group.share.min.session.timeout.ms": "45000",
            "group.share.partition.max.record.locks": "2000",
            "group.share.record.lock.duration.ms": "30000",
            "group.share.session.timeout.ms": "45000",
            "share.coordinator.append.linger.ms": "-1",
            "share.coordinator.cold.partition.snapshot.interval.ms": "300000",
            "share.coordinator.snapshot.update.records.per.snapshot": "500",
            "share.coordinator.state.topic.compression.codec": "0",
            "share.coordinator.state.topic.num.partitions": "50",
            "share.coordinator.state.topic.prune.interval.ms": "300000",
            "share.coordinator.state.topic.segment.bytes": "104857600",
            "share.coordinator.write.timeout.ms": "5000",
        },
    ),
    (
        TRANSACTIONS,
        {
            "transaction.two.phase.commit.enable": "false",
        },
    ),
    (
        _QUOTAS,
        {
            "alter.log.dirs.replication.quota.window.num": "11",
            "alter.log.dirs.replication.quota.window.size.seconds": "1",
        },
    ),
    (
        _SECURITY,
        {
            "delegation.token.expiry.check.interval.ms": "3600000",
            "delegation.token.expiry.time.ms": "86400000",
            "delegation.token.max.lifetime.ms": "604800000",
            "delegation.token.secret.key": None,
            "early.start.listeners": None,
            "sasl.login.connect.timeout.ms": None,
            "sasl.login.read.timeout.ms": None,
            "sasl.login.retry.backoff.max.ms": "10000",
            "sasl.login.retry.backoff.ms": "100",
            "sasl.oauthbearer.assertion.algorithm": "RS256",
            "sasl.oauthbearer.assertion.claim.aud": None,
            "sasl.oauthbearer.assertion.claim.exp.seconds": "300",
            "sasl.oauthbearer.assertion.claim.iss": None,
            "sasl.oauthbearer.assertion.claim.jti.include": "false",
            "sasl.oauthbearer.assertion.claim.nbf.seconds": "60",
            "sasl.oauthbearer.assertion.claim.sub": None,
            "sasl.oauthbearer.assertion.file": None,
            "sasl.oauthbearer.assertion.private.key.file": None,
            "sasl.oauthbearer.assertion.private.key.passphrase": None,
            "sasl.oauthbearer.assertion.template.file": None,
            "sasl.oauthbearer.client.credentials.client.id": None,
            "sasl.oauthbearer.client.credentials.client.secret": None,
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "10000",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "100",
            "sasl.oauthbearer.scope": None,
            "sasl.oauthbearer.scope.claim.name": "scope",
            "sasl.oauthbearer.token.endpoint.url": None,
            "ssl.allow.dn.changes": "false",
            "ssl.allow.san.changes": "false",
            "ssl.keymanager.algorithm": "SunX509",
            "ssl.keystore.password": None,
            "ssl.protocol": "TLSv1.3",
            "ssl.provider": None,
            "ssl.secure.random.implementation": None,
            "ssl.trustmanager.algorithm": "PKIX",
            "ssl.truststore.password": None,
        },
    ),
    (
        TIERED,
        {
            "remote.log.index.file.cache.ttl.ms": "900000",
            "remote.log.manager.copy.quota.window.num": "11",
            "remote.log.manager.copy.quota.window.size.seconds": "1",
            "remote.log.manager.fetch.quota.window.num": "11",
            "remote.log.manager.fetch.quota.window.size.seconds": "1",
            "remote.log.manager.task.interval.ms": "30000",
            "remote.log.manager.task.retry.backoff.max.ms": "30000",
            "remote.log.manager.task.retry.backoff.ms": "500",
            "remote.log.manager.task.retry.jitter": "0.2",
            "remote.log.manager.thread.pool.size": "2",
            "remote.log.metadata.custom.metadata.max.bytes": "128",
            "remote.log.metadata.manager.class.name": (
                "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager"
            ),
            "remote.log.metadata.manager.class.path": None,
            "remote.log.metadata.manager.impl.prefix": "rlmm.config.",
            "remote.log.metadata.manager.listener.name": None,
            "remote.log.reader.max.pending.tasks": "100",
            "remote.log.storage.manager.class.name": None,
            "remote.log.storage.manager.class.path": None,
            "remote.log.storage.manager.impl.prefix": "rsm.config.",
            "remote.log.storage.system.enable": "false",
        },
    ),
    (
        "chunks of the metadata log and of its snapshots have a fixed size (8 MiB and 1 MiB)",
        {"controller.quorum.fetch.max.bytes": "1048576", "controller.quorum.fetch.snapshot.max.bytes": "1048576"},
    ),
    (
        "timeouts between nodes are fixed, except for the quorum (controller.quorum.request.timeout.ms) and for "
        "followers (replica.socket.timeout.ms)",
        {
            "controller.socket.timeout.ms": "30000",
            "request.timeout.ms": "30000",
            "socket.connection.setup.timeout.max.ms": "30000",
            "socket.connection.setup.timeout.ms": "10000",
        },
    ),
    (
        "nothing is written to an idle metadata log; its leader sees by fetches that it is followed",
        {"metadata.max.idle.interval.ms": "500"},
    ),
    (
        "an unclean election happens as soon as it is allowed (unclean.leader.election.enable)",
        {"unclean.leader.election.interval.ms": "300000"},
    ),
    (
        "a broker has one data directory; run one broker per disk (penstock up --brokers N)",
        {"cordoned.log.dirs": "", "log.dir.failure.timeout.ms": "30000", "num.replica.alter.log.dirs.threads": None},
    ),
    (
        "the metadata log is kept in the data directory, beside the partitions",
        {"metadata.log.dir": None},
    ),
    (
        "metadata snapshots are written by size (metadata.log.max.record.bytes.between.snapshots) and trim the log",
        {
            "internal.metadata.delete.delay.millis": "60000",
            "internal.metadata.log.segment.bytes": None,
            "internal.metadata.max.batch.size.in.bytes": "8388608",
            "metadata.log.max.snapshot.interval.ms": "3600000",
            "metadata.log.segment.bytes": "1073741824",
            "metadata.log.segment.ms": "604800000",
            "metadata.max.retention.bytes": "104857600",
            "metadata.max.retention.ms": "604800000",
        },
    ),
    (
        _JAVA,
        {
            "alter.config.policy.class.name": None,
            "client.quota.callback.class": None,
            "create.topic.policy.class.name": None,
            "group.share.persister.class.name": "org.apache.kafka.server.share.persister.DefaultStatePersister",
            "principal.builder.class": "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
            "sasl.client.callback.handler.class": None,
            "sasl.login.callback.handler.class": None,
            "sasl.login.class": None,
            "sasl.oauthbearer.jwt.retriever.class": "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
            "sasl.oauthbearer.jwt.validator.class": "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
            "sasl.server.callback.handler.class": None,
            "ssl.engine.factory.class": None,
        },
    ),
    (
        "values are used literally; put secrets in a file that only the broker can read",
        {"config.providers": ""},
    ),
    (
        "only stable protocol versions and features are supported",
        {"unstable.api.versions.enable": "false", "unstable.feature.versions.enable": "false"},
    ),
)

_ONE_COPY: dict[str, tuple[str, str]] = {
    "share.coordinator.state.topic.min.isr": ("2", SHARE),
    "share.coordinator.state.topic.replication.factor": ("3", SHARE),
}

NOT_YET: dict[str, Planned] = {
    **{name: Planned(default, reason) for reason, names in _NOT_YET for name, default in names.items()},
    **{name: Planned(default, reason, also=("1",)) for name, (default, reason) in _ONE_COPY.items()},
}

LOOP = "one event loop serves all connections; for more cores run more brokers with `penstock up --brokers N`"
DISK_THREADS = "`num.io.threads` sizes the threads that wait for the disk"
COMPACTOR = "one subprocess compacts one log at a time; log.cleaner.dedupe.buffer.size bounds its memory"
METRICS = "use `penstock server --metrics HOST:PORT`, a Prometheus endpoint"
COORDINATOR_LOOP = "coordinators run on the event loop; for more cores use `penstock up --brokers N`"
_PURGATORY = "waiting requests are removed as soon as they are answered, so there is no purging"
_ZOOKEEPER = "there is no ZooKeeper; the controller quorum stores the metadata (process.roles, node.id)"
_VERSION = "supported protocol versions are listed in `docs/reference/compatibility.md` and need no setting"

WITHOUT_MEANING: dict[str, str] = {
    "auto.include.jmx.reporter": METRICS,
    "broker.id.generation.enable": "set node.id",
    "control.plane.listener.name": "set controller.listener.names",
    "controlled.shutdown.max.retries": "SIGTERM transfers leadership and stops cleanly without retries",
    "controlled.shutdown.retry.backoff.ms": "SIGTERM transfers leadership and stops cleanly without retries",
    "controller.performance.always.log.threshold.ms": METRICS,
    "controller.performance.sample.period.ms": METRICS,
    "controller.quorum.append.linger.ms": "decisions made during a sync are written and synced together",
    "delete.records.purgatory.purge.interval.requests": _PURGATORY,
    "fetch.purgatory.purge.interval.requests": _PURGATORY,
    "group.coordinator.background.threads": COORDINATOR_LOOP,
    "group.coordinator.new.enable": "there is one coordinator for all kinds of groups",
    "group.coordinator.threads": COORDINATOR_LOOP,
    "inter.broker.protocol.version": _VERSION,
    "kafka.metrics.polling.interval.secs": METRICS,
    "kafka.metrics.reporters": METRICS,
    "leader.imbalance.per.broker.percentage": "set leader.imbalance.check.interval.seconds",
    "log.cleaner.enable": "log.cleanup.policy alone decides what is compacted",
    "log.initial.task.delay.ms": "background work starts as soon as the broker is ready",
    "log.message.downconversion.enable": "records are sent as stored; clients older than 0.11 are not supported",
    "log.message.format.version": "records are always stored in format version 2",
    "log.message.timestamp.difference.max.ms": (
        "set log.message.timestamp.before.max.ms and log.message.timestamp.after.max.ms"
    ),
    "metrics.num.samples": METRICS,
    "metrics.recording.level": METRICS,
    "metrics.sample.window.ms": METRICS,
    "offsets.load.buffer.size": "logs are loaded in slices that do not block the event loop",
    "password.encoder.secret": "secrets are not stored in configs",
    "producer.purgatory.purge.interval.requests": _PURGATORY,
    "queued.max.requests": "set queued.max.request.bytes",
    "replica.socket.receive.buffer.bytes": "the operating system adapts the buffers between brokers to the link",
    "reserved.broker.max.id": "any node.id from 0 to 2147483647 may be used",
    "security.providers": "the operating system's OpenSSL is used",
    "server.max.startup.time.ms": "use the service manager's start timeout",
    "share.coordinator.load.buffer.size": "logs are loaded in slices that do not block the event loop",
    "share.coordinator.threads": COORDINATOR_LOOP,
    "share.fetch.purgatory.purge.interval.requests": _PURGATORY,
    "transaction.state.log.load.buffer.size": "logs are loaded in slices that do not block the event loop",
    "zookeeper.connect": _ZOOKEEPER,
    "zookeeper.connection.timeout.ms": _ZOOKEEPER,
    "zookeeper.max.in.flight.requests": _ZOOKEEPER,
    "zookeeper.metadata.migration.enable": _ZOOKEEPER,
    "zookeeper.session.timeout.ms": _ZOOKEEPER,
    "zookeeper.set.acl": _ZOOKEEPER,
}


def refusal(name: str, text: str) -> str | None:
    """Why a `NOT_YET` property cannot have this value; None if it can."""
    planned = NOT_YET[name]
    if any(_same(text, accepted) for accepted in (planned.default, *planned.also)):
        return None
    default = "not to set it" if planned.default is None else planned.default or "empty"
    # The value is not repeated: some of these properties are passwords, and this text is logged.
    return f"{name} is refused: {planned.reason}. Leave it out (Kafka's default, which is accepted, is: {default})"


def _same(text: str, accepted: str | None) -> bool:
    """Whether two texts mean the same value, without knowing the type: numbers by value, words in any case."""
    text = text.strip()
    if accepted is None:
        return not text
    try:
        return float(text) == float(accepted)
    except ValueError:
        return [item.strip().lower() for item in text.split(",")] == [item.lower() for item in accepted.split(",")]
