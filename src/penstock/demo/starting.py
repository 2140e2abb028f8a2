"""What to tell somebody who waits for the first results. Pure."""

from __future__ import annotations

from typing import Final

QUIET_S: Final = 3.0
USUAL_S: Final = 45.0
"""Until then a start is nothing unusual, even on two cores."""
BUSY_LOAD_PER_CORE: Final = 1.5


def start_notice(elapsed_s: float, load: float, cores: int) -> str:
    """Says what the wait is about, and whether the machine is to blame; `load` is the average of the last minute."""
    if elapsed_s < QUIET_S:
        return ""
    if elapsed_s < USUAL_S:
        return "Spark shows its first results after 20 to 30 s on an idle machine; until then events wait in the topics"
    if load > BUSY_LOAD_PER_CORE * cores:
        return (
            f"this machine is busy (a load of {load:.0f} on {cores} cores), so Spark starts slowly; "
            "--no-spark shows the demo without it"
        )
    return "Spark takes longer to start than it should; `penstock doctor` checks what may be in its way"
