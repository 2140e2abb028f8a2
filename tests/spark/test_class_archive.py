"""The archive of Spark's classes: when it is used, and when it is made."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.spark import class_archive
from penstock.spark.class_archive import NEW_VARIABLE, VARIABLE, archive_flags, failure_path, is_wanted, making
from penstock.spark.home import PYTHON_VARIABLES
from support.spark import require_spark

OURS = dict.fromkeys(PYTHON_VARIABLES, sys.executable)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    require_spark()
    kept = ("PATH", "JAVA_HOME", "HOME", "PYTHONPATH")
    return {name: os.environ[name] for name in kept if name in os.environ} | OURS | {"XDG_CACHE_HOME": str(tmp_path)}


def test_an_archive_is_used_where_it_exists_and_wanted_where_not(environment: dict[str, str], tmp_path: Path) -> None:
    path = class_archive.archive_path(environment)
    if path is None:
        pytest.skip("this Spark did not come with pip")
    assert path.is_relative_to(tmp_path)
    assert archive_flags(environment) == ""
    assert is_wanted(environment)
    assert not is_wanted({**environment, VARIABLE: "use"})
    assert not is_wanted({**environment, VARIABLE: "off"})
    assert not is_wanted({**environment, NEW_VARIABLE: "x"}), "the process that makes one starts no other"
    path.parent.mkdir()
    path.touch()
    assert f"-XX:SharedArchiveFile={path}" in archive_flags(environment)
    assert not is_wanted(environment)
    assert archive_flags({**environment, VARIABLE: "off"}) == ""


def test_a_half_made_archive_is_never_seen_and_a_failure_is_not_repeated(tmp_path: Path) -> None:
    path = tmp_path / "classes" / "a.jsa"
    with pytest.raises(FileNotFoundError), making(path) as new:
        assert new is not None
    assert "Java wrote no archive" in failure_path(path).read_text()
    with making(path) as new:
        assert new is not None
        new.write_bytes(b"classes")
        assert not path.exists()
        with making(path) as second:
            assert second is None, "one process at a time"
    assert path.read_bytes() == b"classes"
    assert [one.name for one in path.parent.glob("*.new")] == []


def test_java_passes_over_an_archive_that_does_not_fit_in_silence(tmp_path: Path) -> None:
    require_spark()
    from penstock.spark.java import find_java

    java = find_java(os.environ).spark_home(os.environ) / "bin" / "java"
    (tmp_path / "bad.jsa").write_bytes(b"no archive")
    flags = [f"-XX:SharedArchiveFile={tmp_path}/bad.jsa", "-Xshare:auto", "-Xlog:cds*=off"]
    done = subprocess.run([java, *flags, "--version"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "cds" not in done.stdout + done.stderr


SESSION = """
from penstock.spark import build_session
spark = build_session(master="local[1]", config={"spark.ui.enabled": "false"})
flags = spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
print([flag for flag in flags if "SharedArchiveFile" in flag])
print(spark.range(3).count())
spark.stop()
"""


@pytest.mark.long
@pytest.mark.timeout(600)
def test_an_archive_is_made_and_sessions_start_with_it_in_silence(environment: dict[str, str]) -> None:
    path = class_archive.archive_path(environment)
    if path is None:
        pytest.skip("this Spark did not come with pip")
    subprocess.run([sys.executable, "-m", class_archive.TRAINING], env=environment, check=True, capture_output=True)
    assert path.stat().st_size > 50_000_000
    assert not failure_path(path).exists()
    done = subprocess.run([sys.executable, "-c", SESSION], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"['-XX:SharedArchiveFile={path}']", "3"]
    assert done.stderr == ""
