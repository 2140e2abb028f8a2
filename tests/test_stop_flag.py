"""An event for signal handlers."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time

from penstock.stop_flag import StopFlag

HANDLER = """
import signal
from penstock.stop_flag import StopFlag

for _ in range(300):
    stop = StopFlag()
    signal.signal(signal.SIGALRM, lambda *_: stop.set())
    signal.setitimer(signal.ITIMER_REAL, 0.001)
    while not stop.wait(0.00002):
        pass
"""


def test_it_waits_until_it_is_set_or_the_time_is_over() -> None:
    stop = StopFlag()
    assert not stop.wait(0.01)
    assert not stop.is_set()
    stop.set()
    assert stop.is_set()
    assert stop.wait()
    assert stop.wait(0)
    stop.clear()
    assert not stop.is_set()
    assert not stop.wait(0.01)


def test_it_wakes_everybody_who_waits() -> None:
    stop = StopFlag()
    woken: list[bool] = []
    threads = [threading.Thread(target=lambda: woken.append(stop.wait(30)), daemon=True) for _ in range(5)]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    stop.set()
    for thread in threads:
        thread.join(30)
    assert woken == [True] * 5


def test_a_signal_handler_sets_it_whenever_it_comes() -> None:
    assert hasattr(signal, "setitimer")
    # In a process of its own: with threading.Event it hangs, sooner or later.
    subprocess.run([sys.executable, "-c", HANDLER], check=True, timeout=60)
