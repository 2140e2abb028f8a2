"""Metrics that clients push to their broker (KIP-714), and that this broker exports.

    subscriptions (config resources)  → `ClientMetrics`  which client is asked for which metrics, and how often
    GetTelemetrySubscriptions         → the client's subscription
    PushTelemetry                     → `otlp.read_metrics` → `series.ClientSeries` → the Prometheus endpoint

Everything comes from outside: payloads are bounded compressed and decompressed and are read in slices; instances,
series and names are bounded in number and length (`limits` in each module).
"""
