"""A home for Spark in which Python finds compiled modules.

Spark puts `$SPARK_HOME/python/lib/pyspark.zip` before everything else on the path of each Python process that it
starts. Nothing in there is compiled, and of what Python compiles out of a zip file it keeps nothing: each process
compiles Spark's modules anew, for about a second. Six such processes, one after another, stand between a streaming
query with a source in Python and its first batch.

Where Spark came with pip, the same modules stand compiled where this Python finds them anyway. So a JVM that is started
with Penstock gets a home without the zip files, a directory of links in the user's cache; the variable is set for as
long as the JVM takes to start, and not for what the user starts after it.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import site
import sys
import tempfile
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from penstock.spark.java import cache_directories, name_in_cache

VARIABLE: Final = "SPARK_HOME"
PYTHON_VARIABLES: Final = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
LINKED: Final = ("RELEASE", "bin", "conf", "data", "jars", "sbin")
"""What the scripts and the JVM look for in a home."""


@contextmanager
def compiled_modules(environment: MutableMapping[str, str] = os.environ) -> Iterator[None]:
    """Whatever JVM is started in here has its Python processes import compiled modules, where that is possible."""
    home = home_without_zips(environment)
    if home is None:
        yield
        return
    environment[VARIABLE] = str(home)
    try:
        yield
    finally:
        environment.pop(VARIABLE, None)


def home_without_zips(environment: Mapping[str, str]) -> Path | None:
    """The directory of links; None where Spark is another one than pip's, or the workers' Python is not this one."""
    if VARIABLE in environment or not runs_this_python(environment):
        return None
    packages = [_package(name, environment) for name in ("pyspark", "py4j")]
    spark = packages[0]
    if spark is None or None in packages or not (spark / "bin" / "spark-submit").exists():
        return None
    # One for each installation: what stands where they point to may change, where they point to does not.
    for cache in cache_directories(environment):
        home = cache / "spark" / name_in_cache(spark)
        try:
            if not home.is_dir():
                _make_links(spark, home)
            return home
        except OSError:
            continue
    return None


def runs_this_python(environment: Mapping[str, str]) -> bool:
    """Whether Spark is told to start its workers with the Python of this process."""
    return all(environment.get(name) == sys.executable for name in PYTHON_VARIABLES)


def _package(name: str, environment: Mapping[str, str]) -> Path | None:
    """The directory of a package that every process of this Python finds without help."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        return None
    directory = Path(spec.origin).parent
    found_anyway = [*site.getsitepackages(), *environment.get("PYTHONPATH", "").split(os.pathsep)]
    if site.ENABLE_USER_SITE:
        found_anyway.append(site.getusersitepackages())
    return directory if str(directory.parent) in found_anyway else None


def _make_links(spark: Path, home: Path) -> None:
    home.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=home.parent, prefix=".new-"))
    try:
        for name in LINKED:
            if (spark / name).exists():
                (made / name).symlink_to(spark / name)
        made.chmod(0o755)
        made.rename(home)
    except OSError:
        shutil.rmtree(made, ignore_errors=True)
        if not home.is_dir():  # another process was faster where it is
            raise
