"""The transcripts in `scenarios/`, word for word. `transcript.py` says how to read and extend them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from raft.transcript import run_file

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    actual = run_file(path)
    if os.environ.get("PENSTOCK_REWRITE_SCENARIOS"):
        path.write_text(actual)
    assert actual == path.read_text()
