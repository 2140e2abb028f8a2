"""How many consumers a group should have, for autoscalers: KEDA's `metrics-api` scaler, and a HorizontalPodAutoscaler.

    GET /api/v1/groups                        every group with its figures and the number of consumers to run
    GET /api/v1/groups/{group}                one group: `desired_consumers` is what KEDA reads (`valueLocation`)
    GET /apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/{metric}?labelSelector=group%3DNAME
                                              the same as external metrics, for an HPA through an APIService

The number follows `consumers.Scaler`: up at once, down after a cooldown, never beyond the partitions. Use a target of 1
and the type `AverageValue`: then the number of replicas is the number told.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from math import isfinite
from threading import Lock
from typing import Final

from penstock.advise.consumers import Scaler, figures_of, wanted
from penstock.advise.situation import Situation
from penstock.monitor.samples import Kind
from penstock.telemetry.http.messages import HttpError, HttpRequest, HttpResponse
from penstock.telemetry.http.routes import Routes

EXTERNAL: Final = "/apis/external.metrics.k8s.io/v1beta1"
METRICS: Final = {
    "penstock-desired-consumers": "desired_consumers",
    "penstock-lag-records": "lag_records",
    "penstock-lag-seconds": "lag_s",
}
SCALERS_MAX: Final = 20_000


class Autoscaling:
    """Answers autoscalers from the newest situation. Called from the thread of the HTTP server."""

    def __init__(self, situation: Callable[[], Situation | None], wall_ms: Callable[[], int]) -> None:
        self._situation = situation
        self._wall_ms = wall_ms
        self._scalers: dict[str, Scaler] = {}
        self._lock = Lock()

    def add_routes(self, routes: Routes) -> None:
        routes.add("GET", "/api/v1/groups", self._all)
        routes.add("GET", "/api/v1/groups/{group}", self._one)
        routes.add("GET", EXTERNAL, self._discovery)
        routes.add("GET", EXTERNAL + "/namespaces/{namespace}/{metric}", self._external)

    def group(self, name: str) -> dict[str, object] | None:
        """The figures of one group; None if it is unknown."""
        situation = self._situation()
        if situation is None:
            raise HttpError(503, "the cluster has not been sampled yet")
        figures = figures_of(situation, name)
        if figures is None:
            with self._lock:
                self._scalers.pop(name, None)
            return None
        with self._lock:
            if name not in self._scalers and len(self._scalers) >= SCALERS_MAX:
                raise HttpError(429, "too many groups")
            scaler = self._scalers.setdefault(name, Scaler())
            desired = scaler.step(situation.catalogue, figures, self._wall_ms())
        want = wanted(situation.catalogue, figures)
        return {
            "group": name,
            "desired_consumers": desired,
            "consumers": figures.members,
            "useful_max": figures.partitions,
            "needed": want.needed,
            "level": want.level,
            "lag_records": figures.lag_records,
            "lag_s": figures.lag_s if figures.lag_s is not None else 0.0,
            "drain_s": want.drain_s if isfinite(want.drain_s) else None,
            "reasons": list(want.reasons),
        }

    def _all(self, request: HttpRequest) -> HttpResponse:
        situation = self._situation()
        if situation is None:
            raise HttpError(503, "the cluster has not been sampled yet")
        found = [self.group(name) for name in situation.names(Kind.GROUP)]
        return HttpResponse.of_json({"groups": [one for one in found if one is not None]})

    def _one(self, request: HttpRequest) -> HttpResponse:
        found = self.group(request.values["group"])
        if found is None:
            raise HttpError(404, f"there is no group {request.values['group']}, or its lag is not known")
        return HttpResponse.of_json(found)

    def _discovery(self, request: HttpRequest) -> HttpResponse:
        resources = [
            {"name": name, "singularName": "", "namespaced": True, "kind": "ExternalMetricValueList", "verbs": ["get"]}
            for name in METRICS
        ]
        group = "external.metrics.k8s.io/v1beta1"
        return HttpResponse.of_json(
            {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group, "resources": resources}
        )

    def _external(self, request: HttpRequest) -> HttpResponse:
        metric = request.values["metric"]
        if metric not in METRICS:
            raise HttpError(404, f"there is no metric {metric}; there are {', '.join(METRICS)}")
        selector = ",".join(request.parameters().get("labelSelector", []))
        labels = dict(part.split("=", 1) for part in selector.replace("==", "=").split(",") if "=" in part)
        if "group" not in labels:
            raise HttpError(400, "name the group in the selector: group=NAME")
        found = self.group(labels["group"])
        items = []
        if found is not None:
            value = found[METRICS[metric]]
            assert isinstance(value, (int, float))
            items.append(
                {
                    "metricName": metric,
                    "metricLabels": {"group": labels["group"]},
                    "timestamp": datetime.fromtimestamp(self._wall_ms() / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                    # A Kubernetes quantity: thousandths keep fractions exact.
                    "value": f"{round(value * 1000)}m",
                }
            )
        return HttpResponse.of_json(
            {
                "kind": "ExternalMetricValueList",
                "apiVersion": "external.metrics.k8s.io/v1beta1",
                "metadata": {},
                "items": items,
            }
        )
