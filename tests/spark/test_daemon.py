"""The process from which workers are forked."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'penstock[spark]'")


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_what_is_imported_before_a_fork_starts_no_thread() -> None:
    code = (
        "import gc, os, sys; from penstock.spark.daemon import preload; preload();"
        "print(len(os.listdir('/proc/self/task')), 'numpy' in sys.modules, 'pyarrow' in sys.modules,"
        " gc.get_freeze_count() > 10_000)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["1", "True", "False", "True"]
