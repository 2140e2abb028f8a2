"""What docs/reference/client.md shows is what works: its examples, copied out and run."""

from __future__ import annotations

import ast
import asyncio
import re
import sqlite3
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from penstock.client import Consumer, ProcessingFailed, Producer
from support.server_process import ServerProcess
from support.waiting import wait_until

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "client.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


class Enough(Exception):
    """The examples go on for ever; this ends them."""


def example(*parts: str) -> str:
    (found,) = [one for one in EXAMPLES if all(part in one for part in parts)]
    return str(found)


@pytest.fixture
def place(bootstrap: str, create_topic: Callable[..., str]) -> dict[str, str]:
    """A topic with one partition, and a group that begins at its beginning."""
    topic, group = create_topic(), f"g-{uuid.uuid4().hex[:8]}"
    with Consumer(bootstrap, group=group) as consumer:
        consumer.commit({(topic, 0): 0})
    return {"localhost:9092": bootstrap, '"orders"': f'"{topic}"', '"payments"': f'"{topic}"', "shipping": group}


def run(text: str, place: dict[str, str], names: dict[str, Any]) -> None:
    for shown, real in place.items():
        text = text.replace(shown, real)
    code = compile(text, str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    running = eval(code, names)
    if running is not None:
        asyncio.run(running)


@pytest.mark.parametrize("which", [("import Producer",), ("import AsyncProducer",)], ids=" ".join)
def test_producers(place: dict[str, str], which: tuple[str, ...]) -> None:
    names: dict[str, Any] = {}
    run(example(*which), place, names)
    assert f'"{names["stored"].topic}"' == place['"orders"']
    assert names["stored"].offset in (0, 1)


@pytest.mark.parametrize(
    "which",
    [("import Consumer\n", "for message in consumer"), ("import AsyncConsumer",), ("Processor(consumer, ship",)],
    ids=["loop", "async loop", "processor"],
)
def test_consumers(place: dict[str, str], which: tuple[str, ...]) -> None:
    seen: list[bytes | None] = []

    def ship(value: Any) -> None:
        # The processor gives the message, the loops what is in it.
        seen.append(value if isinstance(value, bytes) else value.value())
        if len(seen) == 3:
            raise Enough

    async def ship_async(value: Any) -> None:
        ship(value)

    with Producer(place["localhost:9092"]) as producer:
        for number in range(3):
            producer.send(place['"orders"'].strip('"'), str(number), key="berlin")
    text = example(*which)
    with pytest.raises((Enough, ProcessingFailed)):
        run(text, place, {"ship": ship_async if "await" in text else ship})
    assert seen == [b"0", b"1", b"2"]


def test_exactly_once(place: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    topic = place['"payments"'].strip('"')
    database = sqlite3.connect("totals.db")
    database.executescript("CREATE TABLE accounts (name TEXT, balance INTEGER); INSERT INTO accounts VALUES ('ada', 0)")
    with ThreadPoolExecutor(1) as pool, Producer(place["localhost:9092"]) as producer:
        running = pool.submit(run, example("SqliteOffsets", "while True"), place, {})
        for amount in (3, 4, 5):
            producer.send(topic, str(amount), key="ada").result(30)
        wait_until(lambda: database.execute("SELECT balance FROM accounts").fetchone() == (12,))
        producer.send(topic, "enough", key="ada")
        with pytest.raises(ValueError, match="enough"):
            running.result(30)
    assert database.execute("SELECT balance FROM accounts").fetchone() == (12,)
    database.close()


def test_topic_to_topic(broker: ServerProcess, place: dict[str, str], create_topic: Callable[..., str]) -> None:
    target = create_topic()
    place |= {'"shipments"': f'"{target}"', "shipping-1": target}
    tried: list[bytes] = []

    def ship(message: Any) -> bytes:
        tried.append(message.value())
        if message.value() == b"enough":
            raise Enough
        return bytes(message.value()).upper()

    with Producer(broker.bootstrap) as producer:
        for value in ("a", "b", "enough"):
            producer.send(place['"orders"'].strip('"'), value, partition=0)
    text = example("producer.transaction(consumer)").replace("consumer.poll()", "consumer.poll(max_records=1)")
    with pytest.raises(Enough):
        run(text, place, {"ship": ship})
    assert tried == [b"a", b"b", b"enough"]
    with Consumer(broker.bootstrap, target, "reads", auto_offset_reset="earliest") as consumer:
        seen: list[bytes | None] = []
        while len(seen) < 2:
            seen += [message.value() for message in consumer.poll()]
    assert seen == [b"A", b"B"]
