"""`.format("kafka")` without Spark's connector: the jar, and unchanged jobs in a real Spark."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'penstock-streaming[spark]'")

from penstock.spark import alias, alias_jar
from penstock.spark.alias_jar import AliasUnavailable
from support import spark_kafka
from support.penstock import PenstockServer
from support.records import create_topic, read_topic
from support.spark import require_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAR_BYTES_MAX = 1_000
# Spark's words before and after the class was loaded into its JVM, which the sessions of all tests share.
NOT_THERE = "Failed to find data source: kafka|Data source 'kafka' not found"

needs_javac = pytest.mark.skipif(alias_jar.find_compiler() is None, reason="no javac; install a Java development kit")


@needs_javac
def test_the_jar_holds_one_class_in_less_than_a_kilobyte_and_is_the_same_each_time(tmp_path: Path) -> None:
    compiler = alias_jar.find_compiler()
    assert compiler is not None
    for name in ("one.jar", "two.jar"):
        alias_jar.compile_jar(tmp_path / name, compiler)
    data = (tmp_path / "one.jar").read_bytes()
    assert data == (tmp_path / "two.jar").read_bytes()
    assert len(data) < JAR_BYTES_MAX
    assert zipfile.ZipFile(tmp_path / "one.jar").namelist() == ["kafka/DefaultSource.class"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.jar", "two.jar"]


@needs_javac
def test_a_checkout_compiles_the_jar_once_into_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alias_jar, "JAR_NAME", "absent-from-the-package.jar")
    cached = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    jar = alias_jar.alias_jar(cached)
    assert tmp_path in jar.parents
    # Found again without a compiler.
    assert alias_jar.alias_jar({"XDG_CACHE_HOME": str(tmp_path), "PATH": ""}) == jar


def test_a_jar_in_the_package_needs_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(alias_jar.SOURCES, tmp_path / "alias_java")
    (tmp_path / alias_jar.JAR_NAME).touch()
    monkeypatch.setattr(alias_jar, "SOURCES", tmp_path / "alias_java")
    assert alias_jar.alias_jar({"PATH": ""}) == tmp_path / alias_jar.JAR_NAME


def test_without_jar_and_compiler_the_error_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alias_jar, "JAR_NAME", "absent.jar")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    with pytest.raises(AliasUnavailable, match="install a Java development kit"):
        alias_jar.alias_jar({"PATH": "", "XDG_CACHE_HOME": str(tmp_path)})


@pytest.mark.long
@needs_javac
@pytest.mark.timeout(240)
def test_unchanged_jobs_read_and_write_and_stream_under_the_name_kafka(spark: SparkSession, tmp_path: Path) -> None:
    session = spark.newSession()
    with pytest.raises(Exception, match=NOT_THERE):
        session.read.format("kafka").load()
    assert alias.register(session) is False
    assert alias.register(session, kafka_alias=True) is True
    with PenstockServer() as server:
        options = {"kafka.bootstrap.servers": server.bootstrap}
        one, two = (create_topic(server.bootstrap, f"t-{uuid.uuid4().hex[:8]}") for _ in range(2))
        numbers = session.range(100).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value")
        numbers.write.format("kafka").options(**options, topic=one).mode("append").save()
        read = session.read.format("kafka").options(**options, subscribe=one).load()
        assert read.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
        assert read.selectExpr("sum(CAST(CAST(value AS STRING) AS INT))").first() == (4950,)
        (
            session.readStream.format("kafka")
            .options(**options, subscribe=one, startingOffsets="earliest")
            .load()
            .writeStream.format("kafka")
            .options(**options, topic=two, checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
            .awaitTermination()
        )
        assert sorted(int(record.value or b"") for record in read_topic(server.bootstrap, two)) == list(range(100))


def test_it_leaves_a_session_alone_that_has_the_connector(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alias, "CONNECTOR_CLASS", "org.apache.spark.sql.SparkSession")
    session = spark.newSession()
    assert alias.register(session, kafka_alias=True) is False
    with pytest.raises(Exception, match=NOT_THERE):
        session.read.format("kafka").load()


WITH_THE_CONNECTOR = """
import sys
from penstock.spark import build_session, register
bootstrap, topic, jars = sys.argv[1:]
spark = build_session(master="local[1]", config={"spark.jars": jars, "spark.ui.enabled": "false"})
print("ours:", register(spark, kafka_alias=True))
lookup = spark._jvm.org.apache.spark.sql.execution.datasources.DataSource.lookupDataSource
print("class:", lookup("kafka", spark._jsparkSession.sessionState().conf()).getName())
options = {"kafka.bootstrap.servers": bootstrap}
rows = spark.range(10).selectExpr("CAST(id AS STRING) AS value")
rows.write.format("kafka").options(**options, topic=topic).save()
print("rows:", spark.read.format("penstock").options(**options, subscribe=topic).load().count())
"""


@needs_javac
@pytest.mark.long
@pytest.mark.needs_maven
@pytest.mark.timeout(300)
def test_sparks_own_connector_is_found_first_even_where_the_class_is_on_the_path(tmp_path: Path) -> None:
    require_spark()
    if reason := spark_kafka.available():
        pytest.skip(reason)
    (tmp_path / "job.py").write_text(WITH_THE_CONNECTOR)
    jars = ",".join(str(jar) for jar in (*spark_kafka.jars(), alias_jar.alias_jar()))
    with PenstockServer() as server:
        topic = create_topic(server.bootstrap, f"t-{uuid.uuid4().hex[:8]}")
        done = subprocess.run(
            [sys.executable, "job.py", server.bootstrap, topic, jars],
            cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "ours: False" in done.stdout
    assert f"class: {alias.CONNECTOR_CLASS}" in done.stdout
    assert "rows: 10" in done.stdout
