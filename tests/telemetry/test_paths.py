"""Only the paths that were declared are served: nothing behind them, and no other spelling of them."""

from __future__ import annotations

import pytest

from penstock.telemetry.endpoint import metrics_routes
from penstock.telemetry.http.messages import HttpError

ROUTES = metrics_routes(list)


@pytest.mark.parametrize("path", ["/metrics", "/"])
def test_what_is_declared_is_found(path: str) -> None:
    assert ROUTES.find("GET", path)[1] == {}


@pytest.mark.parametrize(
    "path",
    [
        "/metrics/",
        "/metrics/extra",
        "/metrics/../metrics",
        "/metrics/..%2f..%2fetc/passwd",
        "//metrics",
        "/./metrics",
        "/%6detrics",
        "/metrics%00",
        "/metrics;x=1",
        "/METRICS",
        "metrics",
        "*",
        "",
        "/" * 1_000,
    ],
)
def test_a_path_with_extra_segments_or_another_spelling_is_not_served(path: str) -> None:
    with pytest.raises(HttpError) as refused:
        ROUTES.find("GET", path)
    assert refused.value.status == 404
