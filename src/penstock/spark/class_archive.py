"""An archive of the classes that Spark loads, which halves the processor time that Spark's JVM needs to start.

A JVM that starts Spark loads and verifies thousands of classes. Java can keep them in a file, in the form that they
have in memory (class data sharing). The file is made once for each installation of Java and Spark, by a run of the demo
that nobody sees (`penstock.demo.training`): in the background, at low priority, after the first command that would have
needed it. It takes some 190 MB in the user's cache. Java itself checks that an archive fits, and does without if not.

`PENSTOCK_CLASS_ARCHIVE=off` does without it; `use` uses one that exists and makes none.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from penstock.spark.home import home_without_zips
from penstock.spark.java import JavaNotFound, find_java

VARIABLE: Final = "PENSTOCK_CLASS_ARCHIVE"
NEW_VARIABLE: Final = "PENSTOCK_NEW_CLASS_ARCHIVE"
"""Set in the process that makes an archive: the file to write."""
TRAINING: Final = "penstock.demo.training"
NICENESS: Final = 19
_QUIET: Final = "-Xlog:cds*=off"
"""An archive that does not fit is no news for the user."""


def archive_flags(environment: Mapping[str, str]) -> str:
    """Options for the JVM of a local session; none where there is no archive."""
    if new := environment.get(NEW_VARIABLE):
        return f"-XX:ArchiveClassesAtExit={new} {_QUIET}"
    path = archive_path(environment)
    if path is None or not path.exists():
        return ""
    return f"-XX:SharedArchiveFile={path} -Xshare:auto {_QUIET}"


def archive_path(environment: Mapping[str, str]) -> Path | None:
    """The file for this Java and this Spark; None if archives are switched off or cannot be used here."""
    if environment.get(VARIABLE) == "off" or not sys.platform.startswith("linux"):
        return None
    # An archive belongs to one class path, and only this home has the same one in every session.
    home = home_without_zips(environment)
    if home is None:
        return None
    try:
        java = find_java(environment).spark_home(environment)
        stamps = [(one.stat().st_mtime_ns, one.stat().st_size) for one in (java / "bin" / "java", (home / "jars"))]
    except (JavaNotFound, OSError):
        return None
    key = hashlib.sha256(repr((str(java), str(home), stamps)).encode()).hexdigest()[:16]
    # The same file system as the home, which was writable.
    return home.parent.parent / "classes" / f"{key}.jsa"


def is_wanted(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether an archive should be made: there is none, and nothing speaks against it."""
    if environment.get(VARIABLE) == "use" or NEW_VARIABLE in environment:
        return False
    path = archive_path(environment)
    return path is not None and not path.exists() and not failure_path(path).exists()


def make_in_background() -> bool:
    """Starts the process that makes an archive, if one is wanted; it outlives this one."""
    if not is_wanted():
        return False
    try:
        subprocess.Popen(
            [sys.executable, "-m", TRAINING],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={name: value for name, value in os.environ.items() if name not in ("SPARK_LOCAL_IP",)},
        )
    except OSError:
        return False
    return True


def failure_path(path: Path) -> Path:
    """A file beside the archive that says why it could not be made; with it there, nobody tries again."""
    return path.with_suffix(".failed")


@contextmanager
def making(path: Path) -> Iterator[Path | None]:
    """Gives the file to write, which becomes the archive at the end; None if another process is making it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield None
            return
        new = path.with_suffix(f".{os.getpid()}.new")
        try:
            yield new
            if not new.exists():
                raise FileNotFoundError("Java wrote no archive")
            new.replace(path)
        except Exception as error:
            failure_path(path).write_text(f"{type(error).__name__}: {error}\n", encoding="utf-8")
            raise
        finally:
            new.unlink(missing_ok=True)
