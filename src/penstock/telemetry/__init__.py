"""Telemetry: samples, their text format for Prometheus, and a small HTTP server.

Users
-----
Brokers, clients, pipelines and the Spark listener all do the same three things, which are implemented here:

1. `samples`: report values as `Sample`s. On a hot path a counter is a plain attribute; it becomes a `Sample` only when
   metrics are scraped. `Histogram` and `Rate` are for values that a plain number cannot hold.
2. `exposition`: turn samples into Prometheus' text format.
3. `http`: serve requests. The protocol code does all I/O through the runtime seam, so a simulated broker serves its
   metrics in virtual time. `background` runs the same code on a thread, for processes without an event loop.

This module imports none of them, so that a process loads only what it uses.
"""
