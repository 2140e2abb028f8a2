"""How a session is prepared: pure, without Spark."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from penstock.spark import session
from penstock.spark.java import Java
from penstock.spark.session import (
    is_local,
    local_cores,
    prepare_environment,
    session_settings,
    use_this_python,
)

LOGGING = "spark.driver.extraJavaOptions"


def test_workers_are_started_with_this_python() -> None:
    environment: dict[str, str] = {}
    use_this_python(environment)
    assert environment == {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}


def test_a_python_that_the_user_named_stays() -> None:
    environment = {"PYSPARK_PYTHON": "/opt/venv/bin/python"}
    use_this_python(environment)
    assert environment == dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), "/opt/venv/bin/python")


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "local[4, 3]", "local[*,2]"])
def test_local_masters_listen_on_loopback_only(master: str) -> None:
    assert is_local(master)
    settings = session_settings(master, {}, {})
    assert settings["spark.driver.bindAddress"] == settings["spark.driver.host"] == "127.0.0.1"
    assert settings["spark.python.unix.domain.socket.enabled"] == "true"


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "k8s://https://host", "local-cluster[2,1,1024]", None])
def test_clusters_can_reach_the_driver(master: str | None) -> None:
    assert not is_local(master)
    assert "spark.driver.host" not in session_settings(master, {}, {})


def test_a_small_machine_shuffles_into_as_many_partitions_as_it_has_cores() -> None:
    assert local_cores("local") == 1
    assert local_cores("local[3]") == 3
    assert session_settings("local[3]", {}, {})["spark.sql.shuffle.partitions"] == "3"
    assert "spark.sql.shuffle.partitions" not in session_settings("spark://host:7077", {}, {})


def test_local_workers_are_forked_from_a_process_that_has_imported_what_they_need() -> None:
    this = dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), sys.executable)
    name = "spark.python.daemon.module"
    assert session_settings("local[2]", {}, this)[name] == "penstock.spark.daemon"
    assert session_settings("local[2]", {name: "mine"}, this)[name] == "mine"
    assert name not in session_settings("local[2]", {}, {**this, "PYSPARK_PYTHON": "/opt/other/python"})
    assert name not in session_settings("spark://host:7077", {}, this)


def test_what_the_caller_says_comes_first() -> None:
    name = "spark.sql.streaming.stateStore.providerClass"
    assert session_settings("local[2]", {}, {})[name].endswith("RocksDBStateStoreProvider")
    settings = session_settings("local[2]", {name: "mine", "spark.driver.host": "example"}, {})
    assert (settings[name], settings["spark.driver.host"]) == ("mine", "example")


def test_the_log_is_quiet_unless_the_user_has_a_log_file_of_their_own(tmp_path: Path) -> None:
    quiet = session_settings("local[2]", {}, {})[LOGGING]
    assert quiet.startswith("-Dlog4j2.configurationFile=file:")
    assert Path(quiet.removeprefix("-Dlog4j2.configurationFile=file://")).exists()
    both = session_settings("local[2]", {LOGGING: "-Xss4m"}, {})[LOGGING]
    assert both == f"{quiet} -Xss4m"
    assert LOGGING in session_settings("local[2]", {}, {"SPARK_CONF_DIR": str(tmp_path)})
    (tmp_path / "log4j2.properties").touch()
    assert LOGGING not in session_settings("local[2]", {}, {"SPARK_CONF_DIR": str(tmp_path)})


def test_a_new_jvm_is_told_where_java_and_python_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(session, "_has_jvm", lambda: False)
    monkeypatch.setattr(session, "find_java", lambda _: Java(tmp_path / "bin" / "java", "17", "PATH"))
    environment: dict[str, str] = {}
    prepare_environment(environment, is_local=True)
    assert environment["JAVA_HOME"] == str(tmp_path)
    assert environment["PYSPARK_PYTHON"] == sys.executable
    assert environment["SPARK_LOCAL_IP"] == "127.0.0.1"
    environment = {}
    prepare_environment(environment, is_local=False)
    assert "SPARK_LOCAL_IP" not in environment


def test_a_jvm_that_runs_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_has_jvm", lambda: True)
    environment: dict[str, str] = {}
    prepare_environment(environment, is_local=True)
    assert environment == {}


def test_without_a_master_the_choice_is_that_of_whoever_started_the_process() -> None:
    assert session._given_master({}) == "local[*]"
    assert session._given_master({"PYSPARK_GATEWAY_PORT": "1234"}) is None
    assert session._given_master({"SPARK_REMOTE": "sc://host"}) == "sc://host"
