"""A Spark session with which Penstock's source, sink and pipelines work, on a machine that was not prepared for it.

Three things stand between `pip install` and a session, and each fails in a way that is hard to understand:

- Java: Spark looks at JAVA_HOME and the PATH only. `penstock.spark.java` also knows the one of PyPI.
- Python: Spark starts its workers, and the process that asks a Python data source for its schema and its partitions,
  with `python3` of the PATH. In a virtual environment that was not activated that is another Python, which has no
  Penstock: "Failed to find data source: penstock". The JVM reads the two variables when it starts and never again, so
  they are set when `penstock.spark` is imported, and once more here.
- The network: Spark listens on all addresses of the host, and on some hosts its own name does not resolve.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Mapping, MutableMapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from penstock import install_command
from penstock.spark.home import PYTHON_VARIABLES, compiled_modules, runs_this_python
from penstock.spark.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL_MASTER = "local[*]"
LOOPBACK = "127.0.0.1"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
QUIET_LOGGING = Path(__file__).parent / "log4j2-quiet.properties"

SETTINGS = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # State outlives the heap, and does not make each micro-batch's garbage collection longer.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.ui.showConsoleProgress": "false",
    # Each query starts a process of Python; several at once, on a busy machine, take longer than Spark's 15 s.
    "spark.python.authenticate.socketTimeout": "60s",
}
"""For every session; what the caller says comes before it."""

_set_here: set[str] = set()
_LOCAL = re.compile(r"local(?:\[\s*(\*|\d+)\s*(?:,\s*(?:\*|\d+)\s*)?\])?")


def build_session(
    app_name: str = "penstock",
    *,
    master: str | None = None,
    config: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> SparkSession:
    """A session, new or the one that this process already has.

    `master` is Spark's: `local[*]` unless said otherwise (or unless `spark-submit` started this process, which then has
    chosen one), `spark://…`, `yarn`, `k8s://…`, or `sc://…` for a Spark Connect server. `config` comes before every
    setting that is made here. `log` is a file for what the JVM and Spark's Python processes write to standard error,
    which otherwise is that of this process. Raises JavaNotFound where Spark is to run on this machine and cannot.
    """
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError:
        message = f"Spark is not installed: {install_command('spark')}"
        raise ModuleNotFoundError(message, name="pyspark") from None

    from penstock.spark.alias import register
    from penstock.spark.class_archive import archive_flags
    from penstock.spark.jvm import start_jvm

    chosen = dict(config or {})
    master = master or chosen.pop("spark.master", None) or _given_master(os.environ)
    builder = SparkSession.builder.appName(app_name)
    if master is not None and master.startswith("sc://"):
        builder = builder.remote(master)
        settings = {**_runtime_settings(SETTINGS), **chosen}
        needs_jvm = False
    else:
        prepare_environment(os.environ, is_local=is_local(master))
        settings = session_settings(master, chosen, os.environ)
        if master is not None:
            builder = builder.master(master)
        needs_jvm = not _has_jvm()
        if needs_jvm and is_local(master) and (flags := archive_flags(os.environ)):
            settings[JAVA_OPTIONS] = f"{flags} {settings.get(JAVA_OPTIONS, '')}".strip()
    for name, value in settings.items():
        builder = builder.config(name, value)
    with compiled_modules() if is_local(master) else nullcontext():
        if needs_jvm:
            start_jvm({"spark.app.name": app_name, **({"spark.master": master} if master else {}), **settings}, log)
        spark = builder.getOrCreate()
    # Spark finds the source by itself, unless a broken neighbour keeps it from finding any (see `alias`).
    register(spark)
    return spark


def prepare_environment(environment: MutableMapping[str, str], *, is_local: bool) -> None:
    """What the JVM of a session reads from the environment when it starts. Does nothing where one runs already."""
    if _has_jvm():
        return
    use_this_python(environment)
    environment["JAVA_HOME"] = str(find_java(environment).spark_home(environment))
    if is_local:
        # The only way to keep Spark's web interface from listening on every address of the host.
        environment.setdefault("SPARK_LOCAL_IP", LOOPBACK)


def use_this_python(environment: MutableMapping[str, str] = os.environ) -> None:
    """Has Spark start its workers with the Python of this process, unless the user named another one."""
    executable = sys.executable
    # Spark takes the second one first for data sources. Where it is set to a notebook, they fail: `penstock doctor`.
    for name in PYTHON_VARIABLES:
        executable = environment.get(name) or executable
        if executable and not environment.get(name):
            environment[name] = executable
            if environment is os.environ:
                _set_here.add(name)


def users_environment() -> dict[str, str]:
    """The variables as they were before this module set any."""
    return {name: value for name, value in os.environ.items() if name not in _set_here}


def session_settings(master: str | None, config: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """The settings of a session on a master, the caller's own among them."""
    settings = dict(SETTINGS)
    if is_local(master):
        settings["spark.driver.bindAddress"] = settings["spark.driver.host"] = LOOPBACK
        # 200, Spark's default, costs a small machine more than the work itself.
        settings["spark.sql.shuffle.partitions"] = str(local_cores(master))
        if hasattr(socket, "AF_UNIX"):
            # Over TCP each task waits some 40 ms for an acknowledgement that the other side puts off.
            settings["spark.python.unix.domain.socket.enabled"] = "true"
        if runs_this_python(environment):
            # All workers are on this machine and import the same.
            settings["spark.python.daemon.module"] = "penstock.spark.daemon"
    # A Penstock that is run from a zip file has no file to show to Java.
    if QUIET_LOGGING.exists() and not _has_own_logging(environment):
        flag = f"-Dlog4j2.configurationFile={QUIET_LOGGING.as_uri()}"
        settings[JAVA_OPTIONS] = flag
        if JAVA_OPTIONS in config:
            return {**settings, **config, JAVA_OPTIONS: f"{flag} {config[JAVA_OPTIONS]}"}
    return {**settings, **config}


def is_local(master: str | None) -> bool:
    """Whether driver and executors are one process on this machine."""
    return master is not None and _LOCAL.fullmatch(master) is not None


def local_cores(master: str | None) -> int:
    """How many tasks a local master runs at a time."""
    found = _LOCAL.fullmatch(master or "")
    assert found is not None, "ask is_local() first"
    if found[1] is None:
        return 1
    return len(os.sched_getaffinity(0)) if found[1] == "*" else max(1, int(found[1]))


def _given_master(environment: Mapping[str, str]) -> str | None:
    """What stands for no master at all: the choice of spark-submit or of a Connect client, else this machine."""
    if "SPARK_REMOTE" in environment:
        return environment["SPARK_REMOTE"]
    if "PYSPARK_GATEWAY_PORT" in environment:
        return None
    return LOCAL_MASTER


def _runtime_settings(settings: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in settings.items() if name.startswith("spark.sql.")}


def _has_own_logging(environment: Mapping[str, str]) -> bool:
    directory = environment.get("SPARK_CONF_DIR")
    return directory is not None and any(Path(directory).glob("log4j2.*"))


def _has_jvm() -> bool:
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return True
    from pyspark import SparkContext

    return SparkContext._gateway is not None
