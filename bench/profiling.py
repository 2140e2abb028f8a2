"""Where Penstock's time goes in a case: one more sample of it, after those that count, under a profiler.

With py-spy the shared broker is watched from outside and the picture is a flame graph; without it a new broker runs
under cProfile, which costs it half its speed: then read the shares and not the times.
"""

from __future__ import annotations

import pstats
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

from bench.model import Case, Side
from bench.runner import Bench

_SAMPLES_PER_S = 400
_LINES = 60
_ATTACH_S = 1.0
_END_TIMEOUT_S = 60


class ProfileFailed(Exception):
    """No profile could be taken; the message says why and what to do."""


def profile(bench: Bench, case: Case, directory: Path) -> Path:
    """Takes it and returns the file that holds it."""
    if not case.under_load:
        raise ProfileFailed(f"{case.name} starts its own brokers: only cases under load are profiled")
    directory.mkdir(parents=True, exist_ok=True)
    py_spy = _py_spy()
    if py_spy is not None:
        return _with_py_spy(py_spy, bench, case, directory / f"profile-{case.name}.svg")
    return _with_cprofile(bench, case, directory / f"profile-{case.name}.txt")


def _with_py_spy(py_spy: str, bench: Bench, case: Case, path: Path) -> Path:
    broker = bench.shared(Side.PENSTOCK)
    assert broker is not None
    case.prepare(bench, Side.PENSTOCK)
    try:
        command = [
            py_spy, "record", "--pid", str(broker.pid), "--output", str(path),
            "--rate", str(_SAMPLES_PER_S), "--duration", "3600", "--nonblocking",
        ]  # fmt: skip
        watcher = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        try:
            time.sleep(_ATTACH_S)
            case.sample(bench, Side.PENSTOCK)
            watcher.send_signal(signal.SIGINT)
            _, said = watcher.communicate(timeout=_END_TIMEOUT_S)
        finally:
            if watcher.poll() is None:
                watcher.kill()
                watcher.wait()
    finally:
        case.clean_up(bench, Side.PENSTOCK)
    if not path.exists():
        raise ProfileFailed(f"py-spy wrote nothing: {said.strip()[-500:]} (it needs the right to trace processes)")
    # Its title is the command with all its paths, which say nothing to anybody else.
    picture = path.read_text(encoding="utf-8").replace(py_spy, "py-spy").replace(str(path), path.name)
    path.write_text(picture, encoding="utf-8")
    return path


def _with_cprofile(bench: Bench, case: Case, path: Path) -> Path:
    raw = bench.directory / f"{case.name}.pstats"
    command = _under_cprofile(bench.options.penstock, raw)
    with bench.fresh(Side.PENSTOCK, command=command) as broker:
        broker.start()
        with bench.standing_in(Side.PENSTOCK, broker):
            case.prepare(bench, Side.PENSTOCK)
            case.sample(bench, Side.PENSTOCK)
            case.clean_up(bench, Side.PENSTOCK)
        # The profile is written on the way out.
        broker.stop(_END_TIMEOUT_S)
    if not raw.exists():
        raise ProfileFailed("cProfile wrote nothing: the broker did not end in order. Install py-spy instead")
    text = StringIO()
    statistics = pstats.Stats(str(raw), stream=text).strip_dirs()
    for order in ("tottime", "cumulative"):
        statistics.sort_stats(order).print_stats(_LINES)
    # The head of a listing names the raw file, which is about to go.
    lines = [line.rstrip() for line in text.getvalue().splitlines() if str(raw) not in line]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _under_cprofile(penstock: Sequence[str], raw: Path) -> list[str]:
    if list(penstock[1:2]) != ["-m"]:
        raise ProfileFailed("cProfile needs a command of the form `python -m penstock`. Install py-spy instead")
    return [penstock[0], "-m", "cProfile", "-o", str(raw), *penstock[1:]]


def _py_spy() -> str | None:
    """On the path, or beside this Python as pip puts it."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.exists() else shutil.which("py-spy")
