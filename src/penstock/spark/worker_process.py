"""The Python processes of Spark in which tasks run, one after another."""

from __future__ import annotations

import gc
from functools import cache


@cache
def settle() -> None:
    """What the process has by now stays: called when its first task has imported and connected all that tasks need.

    After each task Spark's worker has Python look through all its objects for those that nobody needs. Of the modules
    alone there are a hundred thousand, which takes longer than a small micro-batch, and the next task waits for it.
    What is frozen is not looked through. Elsewhere than in such a process nothing is done.
    """
    from pyspark import TaskContext

    if TaskContext.get() is not None:
        gc.freeze()
