"""A real broker is killed and its metadata damaged: it refuses, and `penstock metadata recover` brings all back."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.runtime.exits import EXIT_CONFIG
from processes.test_start_and_stop import Running, refusal

PENSTOCK = [sys.executable, "-m", "penstock"]
LOG = "__cluster_metadata-0/00000000000000000000.log"
COUNT = 5_000


def server(data: Path) -> Running:
    return Running("--data", str(data), "--listen", "127.0.0.1:0")


def fill(port: int) -> None:
    address = {"bootstrap.servers": f"127.0.0.1:{port}"}
    topics = [NewTopic("orders", 2, 1, config={"retention.ms": "600000000"}), NewTopic("logs", 1, 1)]
    admin = AdminClient({**address})
    for created in admin.create_topics(topics).values():
        created.result(10)
    producer = Producer(address | {"enable.idempotence": True, "linger.ms": 5})
    for number in range(COUNT):
        producer.produce("orders", b"%d" % number, partition=number % 2)
    producer.produce("logs", b"only")
    assert producer.flush(20) == 0


def read(port: int, topic: str, partitions: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": f"127.0.0.1:{port}", "group.id": "g", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)])
    values, ended = [], 0
    while ended < partitions:
        message = consumer.poll(10)
        assert message is not None
        if message.error() is None:
            values.append(message.value() or b"")
        else:
            assert message.error().name() == "_PARTITION_EOF", message.error()
            ended += 1
    consumer.close()
    return values


def expect_everything(data: Path) -> None:
    with server(data) as running:
        assert sorted(read(running.port, "orders", 2)) == sorted(b"%d" % number for number in range(COUNT))
        assert read(running.port, "logs", 1) == [b"only"]


def penstock(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PENSTOCK, *arguments], capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a broker that was killed while all was well."""
    data = tmp_path_factory.mktemp("killed") / "data"
    with server(data) as running:
        fill(running.port)
        running.process.kill()
    return data


def test_a_flipped_bit_is_refused_twice_and_recovered_with_every_record(killed: Path, tmp_path: Path) -> None:
    data = shutil.copytree(killed, tmp_path / "data")
    log = bytearray((data / LOG).read_bytes())
    log[363] ^= 1
    (data / LOG).write_bytes(log)
    for _ in range(2):
        code, message = refusal("--data", str(data), "--listen", "127.0.0.1:0")
        assert code == EXIT_CONFIG, message
        assert "Traceback" not in message
        assert "3 partitions of 2 topics (logs, orders)" in message
        assert f"penstock metadata recover --data {data}" in message
    shown = penstock("metadata", "recover", "--data", str(data), "--json")
    assert shown.returncode == 0, shown.stderr
    assert [topic["name"] for topic in json.loads(shown.stdout)["topics"]] == ["logs", "orders"]
    assert (data / LOG).read_bytes() == log, "nothing was changed"
    done = penstock("metadata", "recover", "--data", str(data), "--execute", "--yes")
    assert done.returncode == 0, done.stderr
    expect_everything(data)
    listed = json.loads(penstock("log", "strays", str(data), "--json").stdout)
    assert [stray["name"] for stray in listed] == ["__cluster_metadata-0"]
    assert (data / listed[0]["directory"] / Path(LOG).name).read_bytes() == log, "the original is kept"


def test_a_directory_that_was_set_aside_can_be_brought_back(killed: Path, tmp_path: Path) -> None:
    data = shutil.copytree(killed, tmp_path / "data")
    (data / "orders-1").rename(data / "orders-1.0123456789abcdef-stray")
    with server(data):
        pass  # it is served, from nothing
    shutil.rmtree(data / "orders-1")
    restored = penstock("log", "restore", str(data), "orders-1.0123456789abcdef-stray")
    assert (restored.returncode, restored.stdout.strip()) == (0, "orders-1"), restored.stderr
    expect_everything(data)


@pytest.mark.long
@pytest.mark.parametrize("path", [LOG, "__cluster_metadata-0/*.checkpoint", "__cluster_metadata-0/quorum-state"])
def test_no_mutation_of_a_metadata_file_costs_a_record(path: str, killed: Path, tmp_path: Path) -> None:
    (source,) = killed.glob(path)
    name, content = source.relative_to(killed), source.read_bytes()
    mutations = {
        "a checksum": content[:18] + bytes([content[18] ^ 1]) + content[19:],
        "in the middle": content[: len(content) // 2] + b"\xff\xff" + content[len(content) // 2 + 2 :],
        "last byte": content[:-1] + bytes([content[-1] ^ 0x80]),
        "truncated": content[: len(content) // 2],
        "empty": b"",
        "zeroed": bytes(len(content)),
    }
    for what, changed in mutations.items():
        data = shutil.copytree(killed, tmp_path / what)
        (data / name).write_bytes(changed)
        code, message = refusal("--data", str(data), "--listen", "127.0.0.1:0")
        assert code == EXIT_CONFIG, (what, message)
        assert "Traceback" not in message
        done = penstock("metadata", "recover", "--data", str(data), "--execute", "--yes")
        assert done.returncode == 0, (what, done.stderr)
        expect_everything(data)
