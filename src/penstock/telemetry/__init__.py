"""Telemetry: samples, their text format for Prometheus, and a small HTTP server.

Who uses it
-----------
Brokers, clients, pipelines and the Spark listener all do the same three things, so they do them here:

1. `samples`: say what is known as `Sample`s. On a hot path a count is a plain attribute of whoever counts; it becomes a
   `Sample` only when someone scrapes. `Histogram` and `Rate` are for what a plain number cannot hold.
2. `exposition`: turn samples into Prometheus' text format.
3. `http`: answer requests. The protocol code reads and writes through the runtime seam alone, so a simulated broker
   serves its metrics in virtual time. `background` runs the same code on a thread, for processes without a loop.

Nothing here is imported by this module: a broker pays only for what it uses.
"""
