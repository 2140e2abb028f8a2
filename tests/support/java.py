"""Small Java programs of the tests, compiled once against Apache Kafka's jars into `.cache/`, which git ignores."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from support import apache_kafka

CLASSES = apache_kafka.CACHE / "java-classes"
COMPILE_TIMEOUT_S = 120


def unavailable() -> str | None:
    """None when Java programs that use Kafka's client can be compiled and run here, else the reason why not."""
    if reason := apache_kafka.available():
        return reason
    if _compiler() is None:
        return "no javac; install a Java development kit"
    return None


def command(source: Path, *, heap: str, flags: tuple[str, ...] = ()) -> list[str]:
    """What runs the program: arguments are appended."""
    return [*apache_kafka.java_command(heap, flags=flags, classes=_compiled(source)), source.stem]


@functools.cache
def _compiled(source: Path) -> Path:
    """The directory of the program's classes; another text or another Kafka is another directory."""
    digest = hashlib.sha256(source.read_bytes() + apache_kafka.VERSION.encode()).hexdigest()[:16]
    classes = CLASSES / f"{source.stem}-{digest}"
    with apache_kafka.locked(apache_kafka.CACHE / "java-classes.lock"):
        if not classes.exists():
            CLASSES.mkdir(exist_ok=True)
            with tempfile.TemporaryDirectory(prefix="compiling-", dir=CLASSES) as temporary:
                staging = Path(temporary) / "classes"
                libraries = apache_kafka.installation() / "libs"
                compiler = _compiler()
                assert compiler is not None, "ask unavailable() first"
                done = subprocess.run(
                    [compiler, "-cp", f"{libraries}/*", "-d", str(staging), str(source)],
                    capture_output=True,
                    text=True,
                    timeout=COMPILE_TIMEOUT_S,
                    check=False,
                )
                assert done.returncode == 0, f"javac {source.name}:\n{done.stdout}{done.stderr}"
                staging.rename(classes)
    return classes


def _compiler() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return shutil.which("javac", path=str(Path(home) / "bin")) if home else shutil.which("javac")
