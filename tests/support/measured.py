"""A Penstock broker with a Prometheus endpoint."""

from __future__ import annotations

import urllib.request

from support.penstock import PenstockServer
from support.ports import free_ports


class MeasuredServer(PenstockServer):
    metrics_port = 0

    def command(self) -> list[str]:
        if not self.metrics_port:
            (self.metrics_port,) = free_ports(1)
        return [*super().command(), "--metrics", f"127.0.0.1:{self.metrics_port}"]

    def exported(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=10) as answer:
            return str(answer.read(), "utf-8")
