"""Reads Prometheus endpoints of brokers (ours, or a JMX exporter) and pipelines. Bytes, time and series are bounded."""

from __future__ import annotations

import http.client
from collections.abc import Iterable
from math import isfinite
from typing import Final

BODY_BYTES_MAX: Final = 32 * 1024 * 1024
TIMEOUT_S: Final = 3.0
SERIES_MAX: Final = 5_000
WANTED_OF_BROKERS: Final = (
    "kafka_server_brokertopicmetrics_messagesin_total",
    "kafka_server_brokertopicmetrics_bytesin_total",
    "kafka_server_brokertopicmetrics_bytesout_total",
    'kafka_network_requestmetrics_requests_total{request="Produce"',
    'kafka_network_requestmetrics_totaltimems{request="Produce"',
    'kafka_network_requestmetrics_totaltimems{request="Fetch"',
    'kafka_network_requestmetrics_requestqueuetimems{request="Produce"',
    "kafka_server_socket_server_metrics_connection_count",
    "kafka_server_replicafetchermanager_maxlag",
    "penstock_event_loop_stall_ms{",
    "penstock_disk_",
    "penstock_host_",
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
)
WANTED_OF_PIPELINES: Final = ("penstock_pipeline_",)


class ScrapeFailed(Exception):
    """The endpoint did not answer, or not with metrics; the message says why."""


def scrape(address: str, wanted: Iterable[str], timeout_s: float = TIMEOUT_S) -> dict[str, float]:
    """The series at http://ADDRESS/metrics that begin with one of the wanted texts. Raises ScrapeFailed."""
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=timeout_s)
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            raise ScrapeFailed(f"http://{address}/metrics answered {answer.status}")
        body = answer.read(BODY_BYTES_MAX + 1)
    except (OSError, http.client.HTTPException) as error:
        raise ScrapeFailed(f"http://{address}/metrics does not answer: {error or type(error).__name__}") from None
    finally:
        connection.close()
    if len(body) > BODY_BYTES_MAX:
        raise ScrapeFailed(f"http://{address}/metrics is larger than {BODY_BYTES_MAX:,} bytes")
    return parse(body.decode("utf-8", "replace"), wanted)


def parse(text: str, wanted: Iterable[str]) -> dict[str, float]:
    """The wanted series of a page in Prometheus' text format, by name with labels. Lines that make no sense are left
    out, as are values that are not numbers."""
    begins = tuple(wanted)
    found: dict[str, float] = {}
    for line in text.split("\n"):
        if not line.startswith(begins):
            continue
        # The last brace ends the labels; a value may be followed by a time.
        cut = line.rfind("}") + 1 or line.find(" ")
        if cut <= 0 or (line[cut - 1] != "}" and "{" in line):
            continue
        fields = line[cut:].split()
        try:
            value = float(fields[0])
        except (IndexError, ValueError):
            continue
        if isfinite(value) and len(found) < SERIES_MAX:
            found[line[:cut].rstrip().replace(",}", "}")] = value
    return found
