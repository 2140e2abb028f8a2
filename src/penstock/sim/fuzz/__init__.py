"""A fuzzer that sends invalid and odd requests to a cluster that well-behaved clients use at the same time.

    seed ──▶ cases ──▶ attacker ──▶ client port and controller port of a simulated cluster (1 or 3 nodes)
                                       ▲
                     polite client ────┘   after every batch of cases: does everything still work?

- `samples`: random messages generated from their schemas.
- `frames`: requests from the API tables of clients and controllers, with hosts, names, ids and sizes that get past the
  first checks of the handlers, unchanged or with a few bytes mutated.
- `bodies`: record batches with a correct checksum and invalid contents, and decompression bombs.
- `decoder`: decodes record batches without the broker's code, as an independent client would.
- `rounds`: a cluster for one round of cases, and the checks after every batch of them.
- `python -m penstock.sim.fuzz` (`make fuzz`): rounds on all cores; a failing round is minimised and printed.

A round is determined by its seed and number, so it can be repeated. A *case* is the bytes sent to one port of one node.
Most cases are complete frames; some are pipelined, truncated, or garbage.
"""
