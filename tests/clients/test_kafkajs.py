"""kafkajs, from npm. It has gzip built in; the other codecs are other packages of its users."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from clients import stored
from support import npm
from support.penstock import PenstockServer

VERSION = "2.2.4"


@pytest.mark.needs_npm
@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_what_kafkajs_produces_it_consumes(
    server: PenstockServer, new_topic: Callable[..., str], codec: str, idempotent: bool
) -> None:
    if reason := npm.package_missing("kafkajs", VERSION):
        pytest.skip(reason)
    topic = new_topic()
    script = Path(__file__).with_name("kafkajs_round_trip.js")
    done = subprocess.run(
        ["node", str(script), server.bootstrap, topic, codec, str(idempotent).lower(), "100"],
        env={**os.environ, "NODE_PATH": str(npm.CACHE / "node_modules"), "KAFKAJS_NO_PARTITIONER_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["values"] == [f"a value of some length to compress, number {n}" for n in range(100)]
    assert answer["offsets"][0]["high"] == "100"
    assert stored.codecs(server.data_dir, topic) == {codec}
    assert (stored.producer_ids(server.data_dir, topic) == {-1}) is not idempotent
