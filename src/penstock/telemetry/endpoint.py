"""`GET /metrics`: the routes that expose the samples of a process to Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock.telemetry.exposition import CONTENT_TYPE, exposition
from penstock.telemetry.http.messages import HttpRequest, HttpResponse
from penstock.telemetry.http.routes import Routes
from penstock.telemetry.http.server import HttpRuntime, HttpServer
from penstock.telemetry.samples import Sample


def metrics_server(
    runtime: HttpRuntime, samples: Callable[[], Iterable[Sample]], report: Callable[[str, Exception], object]
) -> HttpServer:
    return HttpServer(runtime, metrics_routes(samples), report)


def metrics_routes(samples: Callable[[], Iterable[Sample]]) -> Routes:
    """Routes that collect the samples at each scrape. `/` works as well, for people with a browser."""

    def scrape(request: HttpRequest) -> HttpResponse:
        return HttpResponse(exposition(samples()).encode("utf-8", "replace"), content_type=CONTENT_TYPE)

    routes = Routes()
    for path in ("/metrics", "/"):
        routes.add("GET", path, scrape)
    return routes
