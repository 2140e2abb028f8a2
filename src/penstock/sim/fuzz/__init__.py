"""A standing fuzzer: requests that nobody would send, to a cluster that others use at the same time.

    seed ──▶ cases ──▶ attacker ──▶ client port and controller port of a simulated cluster (1 or 3 nodes)
                                       ▲
                     polite client ────┘   after every batch of cases: is all well?

- `samples`: random messages made from their schemas.
- `frames`: requests from the table of the clients' APIs and that of the controllers', with hosts, names, ids and
  sizes that reach deep into handlers, as they are or with a few bytes changed.
- `bodies`: record batches with a correct checksum and something wrong behind it, and bombs.
- `decoder`: reads record batches without any code of the broker's, as a client written elsewhere would.
- `rounds`: a cluster that lives for one round of cases, and what must hold after every batch of them.
- `python -m penstock.sim.fuzz` (`make fuzz`): rounds on all cores; a round that fails is made small and printed.

A round follows from its seed and number, so it can be had again. What is sent is one *case*: bytes to one port of one
node. Most cases are whole frames; some are pipelined, cut off, or nonsense.
"""
