"""The transcripts in `scenarios/`, word for word. `transcript.py` lists their commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinators.transactions.transcript import Scenario
from support.transcripts import check_transcript

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    check_transcript(path, Scenario().execute)


def test_there_are_transcripts() -> None:
    assert len(SCENARIOS) >= 5
