"""Gauges that are computed at each scrape: sizes, counts, states."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.broker.fetch.sessions import FetchSessions
from penstock.broker.node import Node
from penstock.broker.service import Service
from penstock.metadata import is_reassigning
from penstock.runtime import Runtime
from penstock.telemetry.samples import Sample, counter, gauge

BYTES_OF_PARTITIONS_MAX = 2_000
"""With more partitions, sizes are reported per topic only, so that a scrape does not block the loop."""


class Gauges:
    def __init__(self, runtime: Runtime, node: Node, service: Service, sessions: FetchSessions) -> None:
        self._runtime = runtime
        self._node = node
        self._service = service
        self._sessions = sessions

    def samples(self) -> Iterable[Sample]:
        yield from self._partitions()
        yield from self._connections()
        yield from self._sizes()
        yield from self._node.manager.cleaner.samples()
        disk = self._runtime.disk
        yield gauge("penstock_disk_total_bytes", "Total bytes of the data volume", disk.total_bytes())
        yield gauge("penstock_disk_usable_bytes", "Free bytes of the data volume", disk.free_bytes())
        escaped = "Uncaught exceptions in callbacks and tasks"
        yield counter("penstock_unhandled_errors_total", escaped, self._runtime.unhandled_errors)

    def _partitions(self) -> Iterable[Sample]:
        node = self._node
        image = node.image
        leaders = under_replicated = under_min_isr = offline = reassigning = 0
        for topic in image.topics():
            partitions = node.table.by_id.get(topic.topic_id, [])
            for partition, state in zip(partitions, topic.partitions, strict=False):
                if not node.is_live(state.leader):
                    offline += 1
                if state.leader != node.node_id:
                    continue
                leaders += 1
                under_replicated += len(state.isr) < len(state.replicas)
                reassigning += is_reassigning(state)
                under_min_isr += len(state.isr) < min(partition.min_insync_replicas, len(state.replicas))
        active = node.quorum.controller is not None
        manager, controller = "kafka_server_replicamanager", "kafka_controller_kafkacontroller"
        yield gauge(f"{manager}_partitioncount", "Partitions this broker holds", node.manager.held)
        yield gauge(f"{manager}_leadercount", "Partitions this broker leads", leaders)
        yield gauge(f"{manager}_underreplicatedpartitions", "Led partitions with replicas out of ISR", under_replicated)
        yield gauge(f"{manager}_underminisrpartitioncount", "Led partitions below min.insync.replicas", under_min_isr)
        yield gauge(f"{manager}_reassigningpartitions", "Led partitions that are being reassigned", reassigning)
        yield gauge(f"{controller}_activecontrollercount", "1 on the broker that is the controller", int(active))
        if active:
            yield gauge(f"{controller}_offlinepartitionscount", "Partitions without a leader", offline)
            yield gauge(f"{controller}_globaltopiccount", "Topics in the cluster", image.topic_count)
            yield gauge(f"{controller}_globalpartitioncount", "Partitions in the cluster", image.partition_count)
        recovering = "Partitions still being recovered after a crash"
        yield gauge("penstock_log_recovering_partitions", recovering, node.manager.recovering)
        refused = "Partitions whose logs could not be opened; an operator must act"
        yield gauge("penstock_log_refused_partitions", refused, node.manager.refused)
        strays = "Directories that were set aside; penstock log strays lists them"
        yield gauge("penstock_log_strays", strays, node.manager.strays.count)
        cut = "Ends of logs cut off by recovery and set aside since the start"
        yield counter("penstock_log_cuts_total", cut, node.manager.cut_logs)

    def _connections(self) -> Iterable[Sample]:
        service, sessions = self._service, self._sessions
        count = "kafka_server_socket_server_metrics_connection_count"
        yield gauge(count, "Open connections", service.connection_count)
        yield gauge("penstock_receive_buffer_bytes", "Bytes of buffers for incoming requests", service.receiving_bytes)
        yield gauge("penstock_unread_answer_bytes", "Bytes of large unread responses", service.answer_budget.used)
        yield gauge("penstock_connections_waiting_for_turn", "Connections with queued requests", service.turns.waiting)
        cache = "kafka_server_fetchsessioncache"
        yield gauge(f"{cache}_numincrementalfetchsessions", "Fetch sessions", len(sessions))
        yield gauge(f"{cache}_numincrementalfetchpartitionscached", "Partitions of sessions", sessions.partition_count)
        evicted = "Fetch sessions evicted to make room"
        yield counter(f"{cache}_incrementalfetchsessionevictions_total", evicted, sessions.evictions)

    def _sizes(self) -> Iterable[Sample]:
        per_partition = self._node.manager.held <= BYTES_OF_PARTITIONS_MAX
        for name, partitions in sorted(self._node.table.by_name.items()):
            topic = name.decode()
            sizes = [(p.index, p.log.size_bytes) for p in partitions if p.log is not None]
            if per_partition:
                for index, size in sizes:
                    labels = (("topic", topic), ("partition", str(index)))
                    yield gauge("kafka_log_log_size", "Bytes of a partition's log", size, labels)
            else:
                total = sum(size for _, size in sizes)
                yield gauge("kafka_log_log_size", "Bytes of a topic's logs", total, (("topic", topic),))
