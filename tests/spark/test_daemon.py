"""The process from which workers are forked."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, cast

import pytest

from penstock.spark.daemon import tolerate_closed_readers

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'penstock-streaming[spark]'")


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_what_is_imported_before_a_fork_starts_no_thread() -> None:
    code = (
        "import gc, os, sys; from penstock.spark.daemon import preload; preload();"
        "print(len(os.listdir('/proc/self/task')), 'numpy' in sys.modules, 'pyarrow' in sys.modules,"
        " gc.get_freeze_count() > 10_000)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["1", "True", "False", "True"]


@pytest.mark.parametrize(("error", "code"), [(BrokenPipeError(), 1), (ConnectionResetError(), 1), (None, 0)])
def test_a_worker_whose_rows_nobody_reads_ends_in_silence(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None, code: int
) -> None:
    from pyspark import daemon

    def work(sock: object, authenticated: bool) -> int:
        if error is not None:
            raise error
        return 0

    monkeypatch.setattr(daemon, "worker", work)
    tolerate_closed_readers()
    assert daemon.worker(cast(Any, None), True) == code
