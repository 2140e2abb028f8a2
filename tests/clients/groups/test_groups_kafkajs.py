"""What an application does with a group through kafkajs."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from clients.groups.group import KAFKAJS_VERSION
from support import npm


@pytest.mark.needs_npm
def test_commit_seek_pause_resume_and_the_administration_of_groups(
    bootstrap: str, new_topic: Callable[..., str], group_id: str
) -> None:
    if reason := npm.package_missing("kafkajs", KAFKAJS_VERSION):
        pytest.skip(reason)
    done = subprocess.run(
        ["node", str(Path(__file__).with_name("kafkajs_application.js")), bootstrap, new_topic(2), group_id],
        env={**os.environ, "NODE_PATH": str(npm.CACHE / "node_modules"), "KAFKAJS_NO_PARTITIONER_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen == {
        "described": {
            "state": "Stable",
            "protocol": "RoundRobinAssigner",
            "members": [{"clientId": "worker-1", "clientHost": "/127.0.0.1"}],
        },
        "whilePaused": False,
        "afterSeek": ["0:2", "0:3"],
        "autoCommitted": [4, 2],
        "listed": [{"groupId": group_id, "protocolType": "consumer"}],
        "afterSet": ["0:3"],
        "afterDelete": [],
    }
