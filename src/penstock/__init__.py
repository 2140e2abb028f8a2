"""Penstock: an event-streaming platform in Python that speaks Apache Kafka's protocol.

Four groups of packages (`tools/architecture.py` says what each is for and may import; a test enforces it):

- engine, the brokers: `runtime`, `kernel`, `wire`, `config`, `acls`, `telemetry`, `log`, `raft`, `metadata`,
  `replication`, `coordinators`, `broker`;
- rehearsal, brokers under test: `sim` (whole clusters in virtual time), `testing` (real brokers inside pytest);
- platform, for any Kafka cluster: `client`, `lag`, `balance`, `ops`, `planning`, `forecasting`, `monitor`, `alerts`,
  `advise`, `perf`, `chaos`, `cli`;
- pipeline, on Spark: `arrow`, `spark`, `pipeline`, `demo`.

Platform and pipeline reach brokers through Kafka's protocol only. `docs/design.md` explains why.
"""

__version__ = "0.2.0"

DISTRIBUTION = "penstock-streaming"
"""The name to install. `penstock` on PyPI is an unrelated project; only the import and the command have that name."""


def install_command(extra: str) -> str:
    """How to install an extra, such as `spark`, for messages about a package that is missing."""
    return f"pip install '{DISTRIBUTION}[{extra}]' (in a checkout: pip install '.[{extra}]')"
