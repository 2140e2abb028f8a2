"""What to tell somebody who waits for the first results. Pure."""

from __future__ import annotations

from typing import Final

from penstock.spark import slow_start

QUIET_S: Final = 3.0
USUAL_S: Final = 45.0
"""Until then a start is nothing unusual, even on two cores."""


def start_notice(elapsed_s: float, load: float, cores: int) -> str:
    """Says what the wait is about, and whether the machine is to blame; `load` is the average of the last minute."""
    if elapsed_s < QUIET_S:
        return ""
    if elapsed_s < USUAL_S:
        return "Spark shows its first results after 10 to 20 s on an idle machine; until then events wait in the topics"
    notice = slow_start.notice(elapsed_s, load, cores, usual_s=USUAL_S)
    return f"{notice}; --no-spark shows the demo without it" if "busy" in notice else notice
