"""Makes the archive of Spark's classes (`penstock.spark.class_archive`): runs the demo for a moment, unseen.

python -m penstock.demo.training
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from penstock.demo import runner
from penstock.demo.screens import LineScreen, Screen
from penstock.demo.spark_job import SparkPipeline
from penstock.spark.class_archive import NEW_VARIABLE, NICENESS, archive_path, making

SECONDS: Final = 3.0
RATE: Final = 50.0
DUMP_TIMEOUT_S: Final = 600.0


def main() -> int:
    """Returns an exit code; what went wrong is in a file beside the archive."""
    os.nice(NICENESS)
    path = archive_path(os.environ)
    if path is None or path.exists():
        return 0
    with making(path) as new, TemporaryDirectory(prefix="penstock-training-") as scratch:
        if new is None:
            return 0
        os.environ[NEW_VARIABLE] = str(new)
        _run_demo(Path(scratch) / "data")
        _end_jvm()
    return 0


def _run_demo(data: Path) -> None:
    def make_screen() -> Screen:
        return LineScreen(sys.stdout)

    options = runner.Options(data=data, port=0, seconds=SECONDS, rate=RATE)
    runner.run(
        options,
        SparkPipeline(data),
        make_screen=make_screen,
        announce=lambda address: None,
        confirm=lambda leftovers: None,
    )


def _end_jvm() -> None:
    """Ends Spark's JVM and waits for it: it writes the archive when it ends."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if process is None:
        raise RuntimeError("Spark did not start")
    process.stdin.close()
    process.wait(DUMP_TIMEOUT_S)


if __name__ == "__main__":
    raise SystemExit(main())
