"""Packages from npm for tests, fetched once into `.cache/` of the repository, which git ignores."""

from __future__ import annotations

import fcntl
import functools
import shutil
import subprocess
from pathlib import Path

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "npm"
FETCH_TIMEOUT_S = 300


@functools.cache
def package_missing(name: str, version: str) -> str | None:
    """None when `require(name)` works from `CACHE`, else the reason why not."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return f"{name} wants node and npm, which are not installed"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        manifest = CACHE / "node_modules" / name / "package.json"
        if manifest.exists():
            return None
        try:
            done = subprocess.run(
                ["npm", "install", "--no-audit", "--no-fund", "--no-save", "--prefix", str(CACHE), f"{name}@{version}"],
                capture_output=True,
                text=True,
                timeout=FETCH_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"npm did not fetch {name} within {FETCH_TIMEOUT_S} s"
        if done.returncode:
            return f"npm cannot fetch {name}: {done.stderr.strip().splitlines()[-1:]}"
    return None
