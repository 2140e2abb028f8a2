"""An HTTP server on a thread of its own, for processes that have no event loop: clients and pipelines.

    with BackgroundServer("127.0.0.1", 0, metrics_routes(samples)) as server:
        print(server.url)

Handlers run on that thread, one after another, so they must not block; a handler that has to wait is a coroutine.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from penstock.runtime.background import BackgroundLoop
from penstock.telemetry.http.routes import Routes
from penstock.telemetry.http.server import DEFAULT_LIMITS, HttpServer, Limits


class BackgroundServer:
    """Serves `routes` until it is closed. Raises OSError if the address is unavailable; port 0 uses any free port."""

    def __init__(self, host: str, port: int, routes: Routes, limits: Limits = DEFAULT_LIMITS) -> None:
        self.host = host
        self._loop = BackgroundLoop("penstock-http")
        self._server = HttpServer(self._loop, routes, self._loop.report, limits)
        try:
            self._loop.run(self._server.listen(host, port))
        except BaseException:
            self._loop.stop()
            raise

    @property
    def port(self) -> int:
        return self._server.port

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.address}/"

    def close(self) -> None:
        """Finish current requests, then end the connections and the thread. Closing twice is allowed."""
        if self._loop.is_running:
            self._loop.run(self._server.stop())
            self._loop.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
