"""The generated reference pages match the code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from penstock.config import BROKER, INERT, NOT_YET, TOPIC, WITHOUT_MEANING

ROOT = Path(__file__).resolve().parents[2]


def test_generated_pages_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "tools/generate_docs.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_every_property_is_documented() -> None:
    page = (ROOT / "docs" / "reference" / "configuration.md").read_text(encoding="utf-8")
    shown = [name for name, definition in {**BROKER, **TOPIC}.items() if not definition.hidden]
    for name in (*shown, *INERT, *NOT_YET, *WITHOUT_MEANING):
        assert f"`{name}`" in page
