"""A new virtual environment with the wheel of this tree in it, as a user would have it after `pip install`.

The packages that Penstock depends on are those of the environment that runs the tests, seen through a `.pth` file: to
download and unpack Spark for each run would take minutes. Penstock itself is not seen through it (a checkout is
installed by `.pth` files too, and those do not nest), so what works here works from the wheel.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD_TIMEOUT_S = 120


def build_wheel(directory: Path) -> Path:
    """The wheel of this tree."""
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    [wheel] = directory.glob("*.whl")
    return wheel


def make_venv(directory: Path, wheel: Path | None = None) -> FreshVenv:
    """A new environment, with the wheel unpacked in it as pip would."""
    venv.create(directory, with_pip=False, symlinks=True)
    made = FreshVenv(directory)
    paths = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    (made.site_packages / "dependencies.pth").write_text("".join(f"{path}\n" for path in paths))
    if wheel is not None:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(made.site_packages)
    return made


class FreshVenv:
    """A virtual environment that nobody activates."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.python = directory / "bin" / "python"
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self.site_packages = directory / "lib" / version / "site-packages"

    def run(
        self, *arguments: object, cwd: Path, environment: Mapping[str, str] | None = None, timeout_s: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """`venv/bin/python …`, with the environment variables of a login shell and no others."""
        return subprocess.run(
            [str(self.python), *map(str, arguments)],
            cwd=cwd,
            env={**plain_environment(cwd), **(environment or {})},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            stdin=subprocess.DEVNULL,
        )


def plain_environment(home: Path) -> dict[str, str]:
    """Without what the tests' own environment has set for Spark, and without its programs on the PATH."""
    own = Path(sys.executable).parent
    parts = [part for part in os.environ.get("PATH", os.defpath).split(os.pathsep) if Path(part) != own]
    kept = {name: os.environ[name] for name in ("JAVA_HOME", "LANG", "TMPDIR") if name in os.environ}
    return {**kept, "PATH": os.pathsep.join(parts), "HOME": str(home)}
