"""kcat in a group: Debian's is built on a librdkafka that is years older than the one of the other tests."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Callable

import pytest

from clients.groups.librdkafka import produce

pytestmark = pytest.mark.skipif(
    shutil.which("kcat") is None, reason="kcat is not installed and could not be: apt-get install kcat"
)


def test_kcat_goes_on_where_its_group_was(bootstrap: str, new_topic: Callable[..., str], group_id: str) -> None:
    topic = new_topic()

    def read(count: int) -> list[str]:
        """kcat does not end by itself in a group, so it is asked to after its last record; it commits then."""
        command = ["kcat", "-b", bootstrap, "-G", group_id, "-u", "-q", "-X", "auto.offset.reset=earliest", topic]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
            assert running.stdout is not None
            lines = [running.stdout.readline().rstrip("\n") for _ in range(count)]
            running.send_signal(signal.SIGTERM)
            rest, _ = running.communicate(timeout=60)
        return lines + rest.splitlines()

    produce(bootstrap, topic, "a", "b", "c")
    assert read(3) == ["a", "b", "c"]
    produce(bootstrap, topic, "d")
    assert read(1) == ["d"]
