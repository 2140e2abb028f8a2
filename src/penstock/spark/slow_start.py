"""What to tell somebody who waits for Spark to start. Pure, but for `notice_now`."""

from __future__ import annotations

import os
from typing import Final

EXPECTED: Final = "takes 5 to 10 seconds on an idle machine"
USUAL_S: Final = 30.0
"""Until then a start is nothing unusual, even on two cores."""
BUSY_LOAD_PER_CORE: Final = 1.5


def notice(elapsed_s: float, load: float, cores: int, *, usual_s: float = USUAL_S) -> str:
    """Why a start takes so long; empty as long as it is not unusual. `load` is the average of the last minute."""
    if elapsed_s < usual_s:
        return ""
    if load > BUSY_LOAD_PER_CORE * cores:
        return f"this machine is busy (a load of {load:.0f} on {cores} cores), so Spark starts slowly"
    return "Spark takes longer to start than it should; `penstock doctor` checks what may be in its way"


def notice_now(elapsed_s: float) -> str:
    """The same for this machine as it is now."""
    return notice(elapsed_s, os.getloadavg()[0], len(os.sched_getaffinity(0)))
