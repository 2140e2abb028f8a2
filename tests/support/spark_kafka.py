"""Spark's own Kafka connector, to be compared with: its jars, fetched once into `.cache/`, which git ignores.

    if reason := available():
        pytest.skip(reason)
    SparkSession.builder.config("spark.jars", ",".join(map(str, jars())))

The connector comes in the version of the pyspark that is installed, or in the nearest one that can be had and works
with it: `versions()` says which. Jars are fetched one by one and not with what their poms ask for, because those name
repositories that not every machine reaches, and all of Spark, which is there.
"""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import tempfile
from pathlib import Path

from support.apache_kafka import CACHE, FETCH_TIMEOUT_S, locked

_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
# Artifacts in groups: of each group the first that can be had.
_WANTED = (
    tuple(f"org.apache.spark:spark-sql-kafka-0-10_2.13:{one}" for one in ("4.3.0", "4.2.0")),
    tuple(f"org.apache.spark:spark-token-provider-kafka-0-10_2.13:{one}" for one in ("4.3.0", "4.2.0", "4.0.0")),
    ("org.apache.kafka:kafka-clients:3.9.2",),
    ("org.apache.commons:commons-pool2:2.13.1",),
)
_HOME = CACHE / "spark-kafka-connector"


class ConnectorUnavailable(Exception):
    """Spark's Kafka connector cannot be had on this machine; the message says why."""


@functools.cache
def available() -> str | None:
    """None when the connector is here or could be fetched, else the reason why not."""
    try:
        jars()
    except ConnectorUnavailable as reason:
        return f"Spark's Kafka connector cannot be had: {reason}"
    return None


@functools.cache
def jars() -> tuple[Path, ...]:
    with locked(CACHE / "spark-kafka-connector.lock"):
        if not _HOME.exists():
            _fetch()
    return tuple(sorted(_HOME.glob("*.jar")))


def versions() -> dict[str, str]:
    """Artifact → version."""
    jars()
    read: dict[str, str] = json.loads((_HOME / "versions.json").read_text())
    return read


def _fetch() -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise ConnectorUnavailable("no mvn to fetch it with; install Maven")
    with tempfile.TemporaryDirectory(prefix="fetching-", dir=CACHE) as temporary:
        staging = Path(temporary) / _HOME.name
        staging.mkdir()
        found: dict[str, str] = {}
        for group in _WANTED:
            said = ""
            for artifact in group:
                said = _copy(maven, artifact, staging, Path(temporary))
                if not said:
                    _, name, version = artifact.split(":")
                    found[name] = version
                    break
            else:
                raise ConnectorUnavailable(said)
        (staging / "versions.json").write_text(json.dumps(found, indent=1))
        staging.rename(_HOME)


def _copy(maven: str, artifact: str, into: Path, directory: Path) -> str:
    """Nothing, or what Maven said."""
    command = [
        maven, "--batch-mode", "--quiet", "--no-transfer-progress", _COPY, f"-Dartifact={artifact}",
        f"-DoutputDirectory={into}",
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command, cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            timeout=FETCH_TIMEOUT_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"mvn did not fetch {artifact} within {FETCH_TIMEOUT_S} s"
    if done.returncode == 0:
        return ""
    errors = [line for line in done.stdout.splitlines() if "ERROR" in line]
    return f"mvn could not fetch {artifact}: {(errors or ['it gave no reason'])[0].strip()[:300]}"
