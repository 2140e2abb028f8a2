"""The home that Spark gets so that its Python processes do not compile its modules again and again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'penstock-streaming[spark]'")

from penstock.spark.home import PYTHON_VARIABLES, compiled_modules, home_without_zips

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(tmp_path), **dict.fromkeys(PYTHON_VARIABLES, sys.executable)}


def test_a_home_has_what_spark_starts_from_and_no_zip_files(environment: dict[str, str], tmp_path: Path) -> None:
    home = home_without_zips(environment)
    assert home is not None
    assert home.is_relative_to(tmp_path)
    assert (home / "bin" / "spark-submit").exists()
    assert list((home / "jars").glob("spark-core_*.jar"))
    assert not (home / "python").exists()
    assert home_without_zips(environment) == home, "it is made once"
    assert [path.name for path in home.parent.iterdir()] == [home.name]


def test_it_is_named_while_a_jvm_starts_and_not_after(environment: dict[str, str]) -> None:
    before = dict(environment)
    with compiled_modules(environment):
        assert Path(environment["SPARK_HOME"], "jars").is_dir()
    assert environment == before
    with pytest.raises(RuntimeError), compiled_modules(environment):
        raise RuntimeError
    assert environment == before


def test_a_spark_or_a_python_that_the_user_chose_stays(environment: dict[str, str]) -> None:
    assert home_without_zips(environment | {"SPARK_HOME": "/opt/spark"}) is None
    assert home_without_zips(environment | {"PYSPARK_PYTHON": "/usr/bin/python3"}) is None, "it may have no pyspark"
    with compiled_modules(chosen := environment | {"SPARK_HOME": "/opt/spark"}):
        assert chosen["SPARK_HOME"] == "/opt/spark"
    assert chosen["SPARK_HOME"] == "/opt/spark"


def test_a_spark_that_other_processes_would_not_find_is_left_alone(environment: dict[str, str], tmp_path: Path) -> None:
    """It was found through `sys.path` of this process alone."""
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "pyspark").symlink_to(Path(sys.modules["pyspark"].__file__ or "").parent)
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'here')!r})\n"
        f"from penstock.spark.home import home_without_zips; print(home_without_zips({environment!r}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "None"


def test_the_workers_of_a_session_import_compiled_modules(spark: SparkSession) -> None:
    def where(_: object) -> list[str]:
        import pyspark

        return [pyspark.__file__]

    [found] = spark.sparkContext.parallelize([0], 1).mapPartitions(where).collect()
    assert ".zip" not in found
