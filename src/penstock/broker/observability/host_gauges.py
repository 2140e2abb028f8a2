"""What the broker's process and its host use, computed at each scrape, under the names of Prometheus' exporters.

The process' figures have the names of Prometheus' client libraries (`process_…`). The host's begin with
`penstock_host_`: a node exporter, where there is one, has more of them.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.runtime import Runtime
from penstock.telemetry.samples import Sample, counter, gauge

HOST = "penstock_host"
_FIGURES = (
    ("process_cpu_s", "process_cpu_seconds_total", "CPU time of this process"),
    ("resident_bytes", "process_resident_memory_bytes", "Resident memory of this process"),
    ("open_files", "process_open_fds", "Open file descriptors of this process"),
    ("cores", f"{HOST}_cores", "Cores of the host"),
    ("host_cpu_s", f"{HOST}_cpu_seconds_total", "CPU time used on the host, all cores"),
    ("memory_total_bytes", f"{HOST}_memory_total_bytes", "Memory of the host"),
    ("memory_available_bytes", f"{HOST}_memory_available_bytes", "Memory of the host that programs could still get"),
    ("disk_reads", f"{HOST}_disk_reads_total", "Reads of the data disk"),
    ("disk_writes", f"{HOST}_disk_writes_total", "Writes of the data disk"),
    ("disk_read_bytes", f"{HOST}_disk_read_bytes_total", "Bytes read from the data disk"),
    ("disk_written_bytes", f"{HOST}_disk_written_bytes_total", "Bytes written to the data disk"),
    ("disk_busy_s", f"{HOST}_disk_busy_seconds_total", "Time in which the data disk was busy"),
    ("network_received_bytes", f"{HOST}_network_received_bytes_total", "Bytes received by all interfaces"),
    ("network_sent_bytes", f"{HOST}_network_sent_bytes_total", "Bytes sent by all interfaces"),
    ("network_bytes_per_s_max", f"{HOST}_network_speed_bytes", "Speed of the fastest interface, in bytes per second"),
)


class HostGauges:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def samples(self) -> Iterable[Sample]:
        usage = self._runtime.host_usage()
        for field, name, text in _FIGURES:
            value = getattr(usage, field)
            if value is not None:
                yield (counter if name.endswith("_total") else gauge)(name, text, value)
