"""The jar of one class that lets Spark find a Python data source under the name `kafka`: compiled from `alias_java/`.

The build of the wheel compiles it (`hatch_build.py`), so that users need no compiler. Where there is none in the
package (a checkout, or a wheel that was built on a machine without Java), it is compiled when first asked for, into the
user's cache. Nothing but `javac` is needed: a stub stands for the one class of Spark's that it extends.

This module imports nothing of Penstock, because the build runs it before Penstock is installed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

JAR_NAME = "penstock-kafka-alias.jar"
CLASS_NAME = "kafka/DefaultSource.class"
SOURCES = Path(__file__).parent / "alias_java"
JAVA_RELEASE = "17"
COMPILE_TIMEOUT_S = 120

# Zip's first moment: the jar depends on the sources and the compiler alone, so that two builds are the same.
_EPOCH = (1980, 1, 1, 0, 0, 0)


class AliasUnavailable(Exception):
    """There is no jar in the package, and none can be compiled here; the message says what to do."""


def alias_jar(environment: Mapping[str, str] = os.environ) -> Path:
    """The jar: the package's, or one that is compiled now. AliasUnavailable where that is not possible."""
    packaged = SOURCES.parent / JAR_NAME
    if packaged.exists():
        return packaged
    if not SOURCES.is_dir():
        raise AliasUnavailable("Penstock is run from a zip file, where Java finds no jar: install it for `kafka_alias`")
    compiler = find_compiler(environment)
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in _source_files())).hexdigest()[:16]
    for directory in _cache_directories(environment):
        jar = directory / f"{digest}-{JAR_NAME}"
        if jar.exists():
            return jar
        if compiler is None:
            continue
        with suppress(OSError):
            directory.mkdir(parents=True, exist_ok=True)
            compile_jar(jar, compiler)
            return jar
    if compiler is None:
        raise AliasUnavailable(
            "this installation of Penstock has no jar for the format `kafka`, and there is no javac to compile it: "
            "install a Java development kit, or a wheel that was built where there is one"
        )
    raise AliasUnavailable("no cache directory can be written to: set XDG_CACHE_HOME to one that can")


def compile_jar(jar: Path, compiler: str) -> None:
    """Compiles the sources and puts the jar in its place at once. AliasUnavailable says what the compiler said."""
    with tempfile.TemporaryDirectory(prefix="penstock-alias-") as temporary:
        classes = Path(temporary) / "classes"
        done = subprocess.run(
            [compiler, "--release", JAVA_RELEASE, "-g:none", "-d", str(classes), *map(str, _source_files())],
            capture_output=True,
            text=True,
            timeout=COMPILE_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            said = done.stderr.strip() or done.stdout.strip()
            raise AliasUnavailable(f"{compiler} does not compile the class of the format `kafka`: {said}")
        descriptor, staged = tempfile.mkstemp(dir=jar.parent, prefix="alias-", suffix=".jar")
        try:
            with open(descriptor, "wb") as file, zipfile.ZipFile(file, "w") as archive:
                entry = zipfile.ZipInfo(CLASS_NAME, _EPOCH)
                archive.writestr(entry, (classes / CLASS_NAME).read_bytes(), zipfile.ZIP_DEFLATED, 9)
            os.chmod(staged, 0o644)
            os.replace(staged, jar)
        except BaseException:
            with suppress(OSError):
                os.unlink(staged)
            raise


def find_compiler(environment: Mapping[str, str] = os.environ) -> str | None:
    """The javac of JAVA_HOME or of the PATH."""
    home = environment.get("JAVA_HOME")
    of_home = shutil.which("javac", path=str(Path(home) / "bin")) if home else None
    return of_home or shutil.which("javac", path=environment.get("PATH"))


def _source_files() -> list[Path]:
    return sorted(SOURCES.rglob("*.java"))


def _cache_directories(environment: Mapping[str, str]) -> Iterator[Path]:
    if configured := environment.get("XDG_CACHE_HOME"):
        yield Path(configured) / "penstock" / "jars"
    with suppress(RuntimeError):
        yield Path.home() / ".cache" / "penstock" / "jars"
