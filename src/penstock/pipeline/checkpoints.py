"""The files of ours in a checkpoint directory: on this machine, or wherever Spark's file systems reach.

<checkpoint>/penstock-pipeline.json     whose it is (`identity`)
<checkpoint>/penstock-status.json       how the last run is doing (`status`); local checkpoints only
<checkpoint>/penstock.lock              held while a run goes on; local checkpoints only
<checkpoint>/queries/<query>/           Spark's own, one per query
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote, urlparse

from penstock.pipeline.identity import FILE_NAME, Identity
from penstock.pipeline.model import NOWHERE, Pipeline, PipelineError, Problem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCK_NAME = "penstock.lock"
LOOKS_END_S = 0.5
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+:", re.IGNORECASE)


class Directory(Protocol):
    """As much of a directory as a checkpoint needs."""

    def read(self, name: str) -> str | None: ...

    def write(self, name: str, text: str) -> None:
        """Whole or not at all."""

    def is_empty(self) -> bool:
        """Whether it has nothing in it but files of ours; also if it does not exist."""


def local_path(checkpoint: str) -> Path | None:
    """The directory on this machine, or None for one that is elsewhere."""
    if checkpoint.startswith("file:"):
        return Path(unquote(urlparse(checkpoint).path))
    return None if _SCHEME.match(checkpoint) else Path(checkpoint)


def open_directory(checkpoint: str, spark: SparkSession | None) -> Directory | None:
    """The checkpoint's directory; None where only Spark could reach it and there is none."""
    path = local_path(checkpoint)
    if path is not None:
        return LocalDirectory(path)
    return HadoopDirectory(checkpoint, spark) if spark is not None and hasattr(spark, "_jvm") else None


def read_identity(pipeline: Pipeline, directory: Directory) -> tuple[Identity | None, list[Problem]]:
    """Whose checkpoint this is; None for a new one. Problems for one that is no pipeline's."""
    place = pipeline.places.get("checkpoint", NOWHERE)
    try:
        text = directory.read(FILE_NAME)
        if text is None:
            if directory.is_empty():
                return None, []
            return None, [
                Problem(
                    f"{pipeline.checkpoint} is not empty and is no checkpoint of a pipeline: it has no {FILE_NAME}",
                    "name another directory, or an empty one",
                    place,
                )
            ]
        return Identity.from_json(text), []
    except OSError as error:
        return None, [
            Problem(f"cannot read the checkpoint {pipeline.checkpoint}: {error.strerror}", "name a directory", place)
        ]
    except ValueError as error:
        return None, [
            Problem(
                f"{FILE_NAME} in {pipeline.checkpoint} cannot be read: {error}",
                "it may be of a later Penstock: use that one, or name another directory",
                place,
            )
        ]


def query_location(checkpoint: str, query: str) -> str:
    """Where Spark keeps how far a query came."""
    return f"{checkpoint.rstrip('/')}/queries/{query}"


@contextmanager
def held(pipeline: Pipeline) -> Iterator[None]:
    """Keeps a second run of the same checkpoint away; Spark would notice only when both have written."""
    path = local_path(pipeline.checkpoint)
    if path is None:
        yield
        return
    try:
        path.mkdir(parents=True, exist_ok=True)
        handle = os.open(path / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise PipelineError(
            Problem(
                f"cannot write to the checkpoint {pipeline.checkpoint}: {error.strerror}",
                "name a directory that this user may write to",
                pipeline.places.get("checkpoint", NOWHERE),
            ),
            path=pipeline.path,
        ) from None
    try:
        if not _locked(handle):
            holder = os.pread(handle, 32, 0).decode(errors="replace").strip()
            raise PipelineError(
                Problem(
                    f"the pipeline {pipeline.name} runs already, as process {holder or 'unknown'}",
                    "stop that one first; `penstock pipeline status` shows how it is doing",
                    pipeline.places.get("checkpoint", NOWHERE),
                ),
                path=pipeline.path,
            )
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)


def is_held(directory: Path) -> bool | None:
    """Whether a run holds this checkpoint; None where that cannot be seen. Exact, as the number of a process is not."""
    try:
        handle = os.open(directory / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(handle)
    return False


def _locked(handle: int) -> bool:
    """Takes the lock; whoever only looks whether it is held has it for less than the time that this waits."""
    deadline_s = time.monotonic() + LOOKS_END_S
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError:
            if time.monotonic() > deadline_s:
                return False
            time.sleep(LOOKS_END_S / 10)


class LocalDirectory:
    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, name: str) -> str | None:
        try:
            return (self._path / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def write(self, name: str, text: str) -> None:
        self._path.mkdir(parents=True, exist_ok=True)
        replace_text(self._path / name, text)

    def is_empty(self) -> bool:
        try:
            return all(_is_ours(one.name) for one in self._path.iterdir())
        except FileNotFoundError:
            return True


class HadoopDirectory:
    """Through Spark's file systems: object stores, HDFS."""

    def __init__(self, location: str, spark: SparkSession) -> None:
        jvm = spark._jvm
        assert jvm is not None
        self._jvm = jvm
        self._path = jvm.org.apache.hadoop.fs.Path(location)
        self._files = self._path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())

    def read(self, name: str) -> str | None:
        path = self._jvm.org.apache.hadoop.fs.Path(self._path, name)
        if not self._files.exists(path):
            return None
        stream = self._files.open(path)
        try:
            return bytes(stream.readAllBytes()).decode("utf-8")
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        # Object stores show a file when it is closed, whole; HDFS has the same after the rename.
        temporary = self._jvm.org.apache.hadoop.fs.Path(self._path, f".{name}.new")
        final = self._jvm.org.apache.hadoop.fs.Path(self._path, name)
        stream = self._files.create(temporary, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        self._files.delete(final, False)
        self._files.rename(temporary, final)

    def is_empty(self) -> bool:
        if not self._files.exists(self._path):
            return True
        names = [status.getPath().getName() for status in self._files.listStatus(self._path)]
        return all(map(_is_ours, names))


def _is_ours(name: str) -> bool:
    """A file of ours, or what a crash left of one that was being written; with the checksum that Hadoop adds."""
    return name.startswith(("penstock", ".penstock", "..penstock"))


def replace_text(path: Path, text: str) -> None:
    """Writes a file so that a reader sees the old one or the new one, and a crash leaves one of them."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
