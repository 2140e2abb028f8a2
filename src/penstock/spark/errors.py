"""What the source tells its users, and how Spark is made to tell it first.

Spark shows what a Python data source raised with all of its frames, most of them Spark's own, and the one line that
says what to do comes last. It leaves the frames out where the process has SPARK_HIDE_TRACEBACK set. A process of Spark
ends with the first error that leaves a data source, so it is set there, and only for the errors that are meant for
users: whatever else is raised here is our mistake, and keeps its frames.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_HIDE = "SPARK_HIDE_TRACEBACK"
_KEEP = "PENSTOCK_SPARK_TRACEBACK"
# Imported by Spark's own worker processes and by nothing else.
_WORKER_MODULE = "pyspark.worker_util"

LOSS_INSTRUCTION = (
    "Some data may have been lost because they are not available in Kafka any more; either the data was aged out by "
    "Kafka or the topic may have been deleted before all the data in the topic was processed. If you don't want your "
    'query to fail on such cases, set the source option "failOnDataLoss" to "false".'
)


class SourceError(Exception):
    """Something that a user of the source can do something about; the message says what."""


class OptionError(SourceError, ValueError):
    """An option that is missing, unknown, refused, or has a value that cannot be used."""


class DataLossError(SourceError):
    """Records that were to be read are not there any more; raised with failOnDataLoss=true only."""

    def __init__(self, message: str) -> None:
        self.message = message
        super().__init__(f"{message}. {LOSS_INSTRUCTION}")

    def __reduce__(self) -> tuple[type[DataLossError], tuple[str]]:
        return type(self), (self.message,)


@contextmanager
def told_plainly() -> Iterator[None]:
    """Errors of the client become errors of the source, and both are shown without Spark's frames around them."""
    try:
        yield
    except SourceError:
        hide_frames()
        raise
    except Exception as error:
        # Not before: every session of Spark loads this module, and few of them meet an error.
        from penstock.client import ClientError

        if not isinstance(error, ClientError):
            raise
        hide_frames()
        raise SourceError(str(error)) from None


def tells_plainly(method: Callable[P, R]) -> Callable[P, R]:
    """The same for a whole method."""

    @wraps(method)
    def telling(*args: P.args, **kwargs: P.kwargs) -> R:
        with told_plainly():
            return method(*args, **kwargs)

    return telling


def hide_frames() -> None:
    """The error that is about to be raised is for users: Spark is to show its message alone."""
    if _WORKER_MODULE in sys.modules and not os.environ.get(_KEEP):
        os.environ[_HIDE] = "1"
