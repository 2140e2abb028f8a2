"""Penstock: an event-streaming platform in Python that speaks Apache Kafka's protocol.

Three layers; `tests/test_architecture.py` enforces which may import which:

- the engine (`runtime`, `wire`, `config`, `log`, `raft`, `metadata`, `replication`, `broker`) is the broker;
- the platform (`cli`, `client`, `console`, …) talks to brokers through Kafka's protocol only;
- the pipeline (`pipeline`) runs on Spark and talks to brokers through Kafka's protocol only.
"""

__version__ = "0.2.0"

DISTRIBUTION = "penstock-streaming"
"""The name to install. `penstock` on PyPI is an unrelated project; only the import and the command have that name."""


def install_command(extra: str) -> str:
    """How to install an extra, such as `spark`, for messages about a package that is missing."""
    return f"pip install '{DISTRIBUTION}[{extra}]' (in a checkout: pip install '.[{extra}]')"
