"""kcat, the tool that people reach for first. Debian's is built on an older librdkafka, which is a test in itself."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable

import pytest

from clients import stored
from support.penstock import PenstockServer

pytestmark = pytest.mark.skipif(
    shutil.which("kcat") is None, reason="kcat is not installed and could not be: apt-get install kcat"
)


def kcat(*arguments: str, given: bytes = b"") -> bytes:
    done = subprocess.run(["kcat", *arguments], input=given, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
@pytest.mark.parametrize("codec", stored.CODECS)
def test_every_codec_arrives_as_sent_and_is_stored_compressed(
    server: PenstockServer, new_topic: Callable[..., str], codec: str, idempotent: bool
) -> None:
    topic = new_topic()
    lines = [b'key%d:{"reading": "a reading of some length to compress", "n": %d}' % (n, n) for n in range(200)]
    settings = ["-X", f"enable.idempotence={str(idempotent).lower()}", "-X", "linger.ms=50"]
    kcat("-b", server.bootstrap, "-P", "-t", topic, "-K:", "-z", codec, *settings, given=b"\n".join(lines))
    # KAFKA-18659: librdkafka before 2.8 stops compressing when it does not see Produce v0 advertised.
    assert stored.codecs(server.data_dir, topic) == {codec}
    assert (stored.producer_ids(server.data_dir, topic) == {-1}) is not idempotent
    read = kcat("-b", server.bootstrap, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-f", "%k:%s\n")
    assert read.splitlines() == lines


def test_metadata_and_offsets_by_time(server: PenstockServer, new_topic: Callable[..., str]) -> None:
    topic = new_topic(2)
    kcat("-b", server.bootstrap, "-P", "-t", topic, "-p", "1", given=b"a\nb\nc")
    listed = json.loads(kcat("-b", server.bootstrap, "-L", "-J", "-t", topic))
    assert len(listed["topics"][0]["partitions"]) == 2
    found = kcat("-b", server.bootstrap, "-Q", "-t", f"{topic}:1:-1")
    assert found.decode().strip().endswith("offset 3")
