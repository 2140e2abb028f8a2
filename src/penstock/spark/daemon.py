"""The process from which Spark forks its Python workers, with what they all need already imported.

Spark's own daemon leaves every import to the workers: a thread that a library starts before a fork is not there after
it, while the locks that it held are. So each worker spends the same half a second of processor time on the same
modules, and the first batches of a few queries need a dozen workers. Here those modules are imported once, before the
first fork, but for the ones that start threads: Arrow starts one and is left to the workers, and the library below
numpy is told to start none.

`build_session` has local sessions use it (`spark.python.daemon.module`). Elsewhere the Python of the workers may not
have Penstock.
"""

from __future__ import annotations

import gc
import importlib
import os
import socket
from typing import Final

PRELOADED: Final = ("pyspark.worker", "numpy", "penstock.spark.source", "penstock.spark.reading", "penstock.client")


def preload() -> None:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for name in PRELOADED:
        importlib.import_module(name)
    gc.freeze()  # see penstock.spark.worker_process


def tolerate_closed_readers() -> None:
    """Has a worker end in silence when Spark has read enough of its rows, as for `limit(1)`.

    Spark then closes the socket, and its own daemon prints the BrokenPipeError of the worker's last flush with a
    traceback.
    """
    from pyspark import daemon

    work = daemon.worker

    def worker(sock: socket.socket, authenticated: bool) -> int:
        try:
            return int(work(sock, authenticated))
        except (BrokenPipeError, ConnectionResetError):
            return 1  # the process ends; Spark forks another one for the next task

    daemon.worker = worker


if __name__ == "__main__":
    from pyspark.daemon import manager

    preload()
    tolerate_closed_readers()
    manager()
