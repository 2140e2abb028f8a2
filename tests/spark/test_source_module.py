"""What Spark finds, and what it is told when something is wrong."""

from __future__ import annotations

import importlib
import os
import pickle
import subprocess
import sys
from types import ModuleType

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'penstock-streaming[spark]'")

from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

import penstock.spark
from penstock.client import AuthenticationFailed, SettingsError
from penstock.spark.batch_reader import BatchReader, FilteringBatchReader
from penstock.spark.errors import DataLossError, OptionError, SourceError, tells_plainly
from penstock.spark.schema import source_schema
from penstock.spark.source import PenstockDataSource
from penstock.spark.stream_reader import StreamReader

OPTIONS = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}


def source_of(**more: str) -> PenstockDataSource:
    return PenstockDataSource(CaseInsensitiveDict(OPTIONS | more))


def test_spark_finds_the_source_by_its_modules_name() -> None:
    found = importlib.import_module("pyspark_penstock")

    assert found.DefaultSource is PenstockDataSource
    assert found.DefaultSource.name() == "penstock"
    assert pickle.loads(pickle.dumps(PenstockDataSource)) is PenstockDataSource


def test_the_module_imports_where_spark_is_missing() -> None:
    # One `pyspark_*` module that fails to import takes all Python sources of a session down.
    code = "import sys; sys.modules['pyspark.sql.datasource'] = None; import pyspark_penstock as p; " + (
        "assert not hasattr(p, 'DefaultSource')"
    )

    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_source_loads_without_arrow_and_numpy() -> None:
    # Every session pays for this import, whether it reads topics or not.
    heavy = "{'pyarrow', 'numpy', 'confluent_kafka', 'penstock.client'}"
    code = f"import sys; import penstock.spark.source; assert not {heavy} & set(sys.modules)"

    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_names_are_loaded_when_they_are_used() -> None:
    assert penstock.spark.PenstockDataSource is PenstockDataSource
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = penstock.spark.nothing


@pytest.mark.parametrize("include_headers", [False, True])
def test_sparks_columns_are_arrows_columns(include_headers: bool) -> None:
    arrow = pytest.importorskip("penstock.arrow", reason="pip install 'penstock-streaming[spark]'")

    schema = source_of(includeHeaders=str(include_headers)).schema()

    assert schema == source_schema(include_headers)
    assert to_arrow_schema(schema, timezone="UTC").equals(arrow.arrow_schema(include_headers))


def test_readers_travel() -> None:
    schema = source_schema()

    for reader in (source_of().reader(schema), source_of().streamReader(schema)):
        assert type(pickle.loads(pickle.dumps(reader))) is type(reader)
    assert isinstance(source_of().streamReader(schema), StreamReader)


def test_filters_are_only_taken_in_the_process_that_pushes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    main = ModuleType("__main__")
    main.__spec__ = importlib.machinery.ModuleSpec("pyspark.sql.worker.data_source_pushdown_filters", None)
    asked = {"penstock.pushFilters": "true"}

    assert type(source_of(**asked).reader(source_schema())) is BatchReader
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert type(source_of(**asked).reader(source_schema())) is FilteringBatchReader
    assert type(source_of().reader(source_schema())) is BatchReader


def test_other_columns_are_refused() -> None:
    for read in (source_of().reader, source_of().streamReader):
        with pytest.raises(OptionError, match="Kafka source has a fixed schema and cannot be set with a custom one"):
            read(StructType())


# Errors


def test_errors_of_the_client_are_errors_of_the_source() -> None:
    @tells_plainly
    def fail(error: Exception) -> None:
        raise error

    with pytest.raises(SourceError, match="wrong password"):
        fail(AuthenticationFailed("wrong password"))
    with pytest.raises(SourceError, match="JKS stores can only be read in Java"):
        fail(SettingsError("ssl.truststore.type", "JKS stores can only be read in Java"))
    with pytest.raises(KeyError):
        fail(KeyError("a mistake of ours"))


def test_frames_are_hidden_in_processes_of_spark_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HIDE_TRACEBACK", raising=False)

    @tells_plainly
    def fail() -> None:
        raise DataLossError("gone")

    def hidden() -> bool:
        with pytest.raises(DataLossError):
            fail()
        return "SPARK_HIDE_TRACEBACK" in os.environ

    monkeypatch.delitem(sys.modules, "pyspark.worker_util", raising=False)
    assert not hidden()
    monkeypatch.setitem(sys.modules, "pyspark.worker_util", ModuleType("pyspark.worker_util"))
    monkeypatch.setenv("PENSTOCK_SPARK_TRACEBACK", "1")
    assert not hidden()
    monkeypatch.delenv("PENSTOCK_SPARK_TRACEBACK")
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")  # so that it is put back afterwards
    os.environ.pop("SPARK_HIDE_TRACEBACK")
    assert hidden()


def test_errors_travel() -> None:
    error = pickle.loads(pickle.dumps(DataLossError("a-0 is gone")))

    assert str(error) == str(DataLossError("a-0 is gone"))
    assert "failOnDataLoss" in str(error)
