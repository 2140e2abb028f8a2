"""The generated modules are what the generator writes, and stay cheap to import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, cwd=ROOT)


def test_the_modules_are_up_to_date() -> None:
    result = run("tools/generate_messages.py", "--check")
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_table_of_apis_loads_no_messages_and_no_kio() -> None:
    code = (
        "import sys, penstock.wire.apis, penstock.wire.headers;"
        "print([m for m in sys.modules if m.startswith(('penstock.wire.messages.', 'kio', 'dataclasses'))])"
    )
    result = run("-c", code)
    assert result.stdout.strip() == "['penstock.wire.messages.index']", result.stderr
