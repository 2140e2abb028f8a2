"""The measurements and reports of performance tests. Pure: no clock, no client, no terminal.

`penstock perf` talks to a cluster through confluent-kafka and uses this package for

- latencies (`Histogram`: every one is counted, in bounded memory, to within one per cent);
- the output format of Kafka's tools (`lines`: kafka-producer-perf-test, kafka-consumer-perf-test and the end-to-end
  latency tool, so that scripts for those work here too);
- whether the latency is good enough, and for what (`classes`: the latency budget and the classes of use);
- the send rate (`Throttle`), the data to send (`payloads`), charts (`plot`);
- the choice of a codec for given data (`codecs`).
"""

from __future__ import annotations

from penstock.perf.histogram import Histogram

__all__ = ["Histogram"]
