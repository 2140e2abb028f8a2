"""Alerts: what is wrong with a cluster, since when, and what to do about it.

- `catalogue`: the rules, as data. Thresholds are values of the planning catalogue, so a user's TOML file replaces them.
- `engine`: from samples to alerts. Pure. A rule fires when its condition has held for a while, and is resolved when the
  value has been clearly better for a while.
- `notices`: groups of alerts as messages, in the format of Alertmanager's webhooks.
- `silences`: alerts that somebody knows about already.
- `board`: keeps alerts and silences in the compacted topic `penstock.alerts`, so that `penstock alerts list` sees them
  and a restarted monitor continues.
- `sinks`: to the log, a webhook and that topic. A sink never holds up the monitor.
- `prometheus`, `grafana`: the same rules and metrics for Prometheus and Grafana.

`penstock monitor` runs the engine on every round (`following`).
"""
