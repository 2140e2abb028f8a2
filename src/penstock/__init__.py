"""Penstock: an event-streaming platform in Python that speaks Apache Kafka's protocol.

Three layers, and what may know what (`tests/test_architecture.py` keeps it so):

- the engine (`runtime`, `wire`, `config`, `log`, `raft`, `metadata`, `replication`, `broker`) is the broker;
- the platform (`cli`, later `client`, `console`, …) talks to brokers through Kafka's protocol only;
- the pipeline (later `pipeline`) runs on Spark and talks to brokers through Kafka's protocol only.
"""

__version__ = "0.2.0"

DISTRIBUTION = "penstock-streaming"
"""The name to install. `penstock` on PyPI is an unrelated project; only the import and the command have that name."""


def install_command(extra: str) -> str:
    """How to install an extra, such as `spark`, for messages about a package that is missing."""
    return f"pip install '{DISTRIBUTION}[{extra}]' (in a checkout: pip install '.[{extra}]')"
