"""Penstock beside what a user would pick instead, with the same client and the same data on the same machine.

`python -m bench` (or `make bench`) runs it; `README.md` beside this file tells how to read the result. How it works:

- A *side* is what is measured: Penstock, Apache Kafka (fetched by `tests/support/apache_kafka.py`), or librdkafka's
  mock cluster, which stores nothing and runs inside the client: nothing can be faster with this client.
- A *case* takes one *sample* (a few named numbers) of one side. Cases under load share one warmed-up broker per side,
  the others start their own.
- Samples alternate between the sides, Penstock, Kafka, Penstock, Kafka …, so that what else the machine does meets
  both. A ratio is taken within each pair, and the median of those ratios is what is reported. The first sample of
  every case and side is thrown away: the JVM compiles, files and connections are new.
- The client is `loadgen.c`, librdkafka driven from C and compiled at run time; without a compiler, the same in Python.
- Targets are printed beside the results and never asserted: a time is not a test.

| module | its job |
|---|---|
| `__main__` | the command line; `command_line` what it shares with those of `recovery` and `slow_readers` |
| `cases` | the list of all; `load`, `raw_produce`, `footprint`, `recovery`, `slow_readers` what each measures |
| `model`, `runner` | what a case is; alternation, warm-up, progress |
| `groups` | a command of its own; `groups_rebalances`, `groups_offsets`, `groups_footprint` are its cases |
| `groups_settings`, `groups_members`, `groups_client` | what both sides are told; members; their connections |
| `scale` | a command of its own; `scale_controller`, `scale_groups` measure pure code, without a broker |
| `fairness`, `memory` | commands of their own; `greed` the greedy clients of both |
| `brokers`, `processes` | Penstock as a server, topics; CPU time, memory and files of a process |
| `client`, `loadgen.c`, `loadgen_python` | the load; `payloads` what it consists of; `wire` speaks to raw sockets |
| `report`, `chart`, `profiling` | tables and files; the picture; where Penstock's time goes |
"""

import sys
from pathlib import Path

# The real Apache Kafka is started by the same code that the tests use.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
