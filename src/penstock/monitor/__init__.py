"""Watches a Kafka cluster through its protocol, and remembers what it saw.

Every 10 seconds `penstock monitor` asks the cluster for its brokers, topics, partitions and groups, reads the brokers'
Prometheus endpoints where there are some, and turns two successive answers into figures: rates, lag in records and
seconds, replica lag, utilisation. The figures go to the topic `penstock.metrics`, so that history survives the process
and Spark can read it; hourly and daily roll-ups go to the compacted topic `penstock.metrics.rollups`. The newest
figures are served on a Prometheus endpoint.

Modules
-------
- `samples`: the records of both topics, and the table of all metrics. Other programs read these topics; this module is
  their contract.
- `rollups`: raw samples to minimum, maximum, mean and last value per hour and day. Pure.
"""
