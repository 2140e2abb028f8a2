"""Where a table lies: a directory, or a URL of an object store that both deltalake and Spark know."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from penstock.pipeline.lake.errors import LakeError

if TYPE_CHECKING:
    from pyarrow import NativeFile
    from pyarrow.fs import FileSystem

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_SCHEMES = ("s3", "s3a", "gs", "az", "abfs", "abfss", "adl", "azure", "hdfs", "memory")
_SPARK_SCHEMES = {"s3": "s3a"}
"""Hadoop's client for S3 has a name of its own."""


@dataclass(frozen=True)
class Location:
    """A table's root. Small and picklable: tasks get it, too."""

    uri: str
    """What deltalake opens: an absolute path, or a URL."""
    storage_options: tuple[tuple[str, str], ...] = ()

    @property
    def is_local(self) -> bool:
        return _URL.match(self.uri) is None

    @property
    def options(self) -> dict[str, str] | None:
        return dict(self.storage_options) or None

    def spark_path(self, relative: str) -> str:
        """How Spark names a file of the table."""
        if self.is_local:
            return f"file://{self.uri}/{relative}" if relative else f"file://{self.uri}"
        scheme, _, rest = self.uri.partition("://")
        root = f"{_SPARK_SCHEMES.get(scheme, scheme)}://{rest}"
        return f"{root}/{relative}" if relative else root

    def open_output(self, relative: str) -> NativeFile:
        """A new file; its directory is made where there are such things."""
        if self.is_local:
            import pyarrow as pa

            path = os.path.join(self.uri, relative)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            return pa.OSFile(path, "wb")
        return self._filesystem().open_output_stream(relative)

    def open_input(self, relative: str) -> NativeFile:
        """A file of the table, to read it."""
        if self.is_local:
            import pyarrow as pa

            return pa.memory_map(os.path.join(self.uri, relative), "r")
        return self._filesystem().open_input_file(relative)

    def delete(self, relative: str) -> None:
        """Removes a file that no commit names. Not finding it is fine, and failing to remove it is: vacuum will."""
        try:
            if self.is_local:
                os.unlink(os.path.join(self.uri, relative))
            else:
                self._filesystem().delete_file(relative)
        except OSError:
            return

    def _filesystem(self) -> FileSystem:
        from deltalake.fs import DeltaStorageHandler
        from pyarrow.fs import PyFileSystem

        return PyFileSystem(DeltaStorageHandler(self.uri, self.options))


def locate(path: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> Location:
    """The place that a user named. A path is made absolute here: tasks may run in another directory."""
    text = os.fspath(path)
    if not text:
        raise LakeError("a table's path is empty", "give a directory, or a URL such as s3://bucket/orders")
    if text.startswith("file:"):
        text = unquote("/" + text.removeprefix("file:").lstrip("/"))
    if found := _URL.match(text):
        scheme = found[1].lower()
        if scheme not in _SCHEMES:
            raise LakeError(
                f"{scheme}:// of {text!r} is no store that tables can be in",
                "use a directory, or a URL that begins with s3, gs, abfss or az",
            )
        return Location(text.rstrip("/"), _items(storage_options))
    return Location(os.path.abspath(os.path.expanduser(text)), _items(storage_options))


def _items(options: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((options or {}).items()))
