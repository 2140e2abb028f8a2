"""A step of the build of the wheel: compiles the one Java class of the project, where there is a compiler.

A wheel that was built without one works as well, but for `register(spark, kafka_alias=True)`, which then wants `javac`
on the user's machine. Releases are built with `PENSTOCK_REQUIRE_ALIAS_JAR=1`, which makes a missing compiler an error.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class AliasJarHook(BuildHookInterface):  # type: ignore[type-arg]
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            # A checkout compiles it when it is first asked for: no file of a build lies about among the sources.
            return
        alias_jar = _load(Path(self.root) / "src" / "penstock" / "spark" / "alias_jar.py")
        compiler = alias_jar.find_compiler()
        if compiler is None:
            if os.environ.get("PENSTOCK_REQUIRE_ALIAS_JAR"):
                raise RuntimeError("there is no javac: this wheel would be without its jar for the format `kafka`")
            self.app.display_warning("no javac: the wheel is built without its jar for the format `kafka`")
            return
        self._directory = tempfile.TemporaryDirectory(prefix="penstock-build-")
        jar = Path(self._directory.name) / alias_jar.JAR_NAME
        alias_jar.compile_jar(jar, compiler)
        build_data["force_include"][str(jar)] = f"penstock/spark/{alias_jar.JAR_NAME}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        directory = getattr(self, "_directory", None)
        if directory is not None:
            directory.cleanup()


def _load(path: Path) -> ModuleType:
    """The module without its package, which is not installed while it is being built."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
