"""What a performance test counts, and how it says so. Pure: no clock, no client, no terminal.

`penstock perf` is the shell around this package: it talks to a cluster through confluent-kafka and asks here

- what the latencies were (`Histogram`: every one is counted, in bounded memory, to within one per cent);
- what Kafka's own tools would print (`lines`: kafka-producer-perf-test, kafka-consumer-perf-test and the end-to-end
  latency tool, so that scripts that read those read these);
- whether that is good enough, and for what (`classes`: the latency budget and the classes of use);
- how fast to go (`Throttle`), what to send (`payloads`), how it looks (`plot`);
- which codec suits the data at hand (`codecs`).
"""

from __future__ import annotations

from penstock.perf.histogram import Histogram

__all__ = ["Histogram"]
