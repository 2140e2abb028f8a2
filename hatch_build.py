"""Steps of the build: compiles the kernels (`penstock.kernel`) and the one Java class of the project.

Both need a compiler, and a build without one works as well. The kernels are then interpreted, which costs a broker a
microsecond or two for each record. `register(spark, kafka_alias=True)` then wants `javac` on the user's machine.
Releases are built with `PENSTOCK_REQUIRE_KERNELS=1` and `PENSTOCK_REQUIRE_ALIAS_JAR=1`, which make a missing compiler
an error.

An editable installation (`make run`, `make test`) gets the kernels too, beside the installed packages. It compiles the
jar when it is first asked for. No file of a build lies about among the sources.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

EDITABLE = "editable"


class CompilingHook(BuildHookInterface):  # type: ignore[type-arg]
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="penstock-build-")
        self._compile_kernels(version, build_data)
        if version != EDITABLE:
            self._compile_jar(build_data)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        self._directory.cleanup()

    def _compile_kernels(self, version: str, build_data: dict[str, Any]) -> None:
        names, compiling = self._load("kernel/names.py"), self._load("kernel/compiling.py")
        if os.environ.get(names.PURE_VARIABLE):
            return
        try:
            compiled = compiling.compile_kernels(Path(self._directory.name), names.compiled_name)
        except compiling.CannotCompile as error:
            if os.environ.get("PENSTOCK_REQUIRE_KERNELS"):
                raise RuntimeError(f"the kernels cannot be compiled: {error}") from error
            self.app.display_warning(f"the kernels are not compiled: {error}")
            return
        included = build_data["force_include_editable" if version == EDITABLE else "force_include"]
        for file in compiled:
            included[str(file)] = file.name
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def _compile_jar(self, build_data: dict[str, Any]) -> None:
        alias_jar = self._load("spark/alias_jar.py")
        compiler = alias_jar.find_compiler()
        if compiler is None:
            if os.environ.get("PENSTOCK_REQUIRE_ALIAS_JAR"):
                raise RuntimeError("there is no javac: this wheel would be without its jar for the format `kafka`")
            self.app.display_warning("no javac: the wheel is built without its jar for the format `kafka`")
            return
        jar = Path(self._directory.name) / alias_jar.JAR_NAME
        alias_jar.compile_jar(jar, compiler)
        build_data["force_include"][str(jar)] = f"penstock/spark/{alias_jar.JAR_NAME}"

    def _load(self, path: str) -> ModuleType:
        """The module without its package, which is not installed while it is being built."""
        file = Path(self.root) / "src" / "penstock" / path
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
