"""A worker of a transactional workload, in a process of its own so that it can be killed.

    python -m penstock.chaos.worker '{"servers": …, "name": …, "kind": "bank", …}'

It reads one topic and writes another in transactions, with `producer.transaction(consumer)`. It reports each of them
on standard output: `abort ATTEMPT` before it aborts one on purpose or after it was aborted, `commit ATTEMPT` after its
commit was acknowledged, `over REASON` when it starts over. It ends with its standard input.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import uuid
from dataclasses import asdict, dataclass, field
from typing import Final

from confluent_kafka import Message

from penstock.chaos.transaction_account import HEADER, Output
from penstock.client import ConsumeFailed, Consumer, Producer, TransactionAborted, TransactionFatal, TransactionTimedOut

ABORTED_SHARE: Final = 0.1
"""Of the transactions; their workers abort them on purpose."""
SESSION_TIMEOUT_MS: Final = 10_000
REQUEST_TIMEOUT_MS: Final = 4_000


@dataclass(frozen=True)
class Plan:
    """All that a worker needs to know."""

    servers: str
    name: str
    """Its transactional id and its name in the group: a successor has the same."""
    kind: str
    """bank or copy."""
    source: str
    target: str
    group: str
    partitions: int
    batch: int = 50
    transaction_timeout_ms: int = 20_000
    properties: dict[str, str] = field(default_factory=dict)

    def encode(self) -> str:
        return json.dumps(asdict(self))


class Deliberate(Exception):
    """This transaction is to be aborted."""


def main(plan: Plan) -> None:
    ending = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        ending.set()

    threading.Thread(target=listen, daemon=True).start()
    while not ending.is_set():
        try:
            work(plan, ending)
        except (TransactionFatal, TransactionTimedOut, ConsumeFailed) as error:
            # A static member whose request to join was repeated may be fenced by its own first attempt.
            tell("over", f"{type(error).__name__} {error}".replace("\n", " "))


def work(plan: Plan, ending: threading.Event) -> None:
    settings = {
        **plan.properties,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": "false",
        "max.poll.records": plan.batch,
        "group.instance.id": plan.name,
        "session.timeout.ms": SESSION_TIMEOUT_MS,
        "request.timeout.ms": REQUEST_TIMEOUT_MS,
        "log_level": 0,
    }
    sending = {
        **plan.properties,
        "transactional.id": plan.name,
        "transaction.timeout.ms": plan.transaction_timeout_ms,
        "request.timeout.ms": REQUEST_TIMEOUT_MS,
        "linger.ms": 2,
        "log_level": 0,
    }
    with (
        Producer(plan.servers, sending) as producer,
        Consumer(plan.servers, plan.source, plan.group, settings) as consumer,
    ):
        producer.init_transactions()
        while not ending.is_set():
            messages = consumer.poll(0.25)
            if not messages:
                continue
            attempt = f"{plan.name}-{uuid.uuid4().hex[:12]}"
            try:
                with producer.transaction(consumer):
                    write(producer, plan, attempt, messages)
                    if random.random() < ABORTED_SHARE:
                        tell("abort", attempt)
                        raise Deliberate
            except Deliberate:
                continue
            except TransactionAborted as error:
                tell("abort", attempt)
                if error.permanent:
                    raise
                ending.wait(0.05)
                continue
            tell("commit", attempt)


def write(producer: Producer, plan: Plan, attempt: str, messages: list[Message]) -> None:
    records = [record for message in messages for record in outputs(plan, message)]
    for index, (partition, value, source, leg) in enumerate(records):
        header = Output(attempt, index, len(records), source, leg).encode()
        producer.send(plan.target, value, partition=partition, headers=[(HEADER, header)])


def outputs(plan: Plan, message: Message) -> list[tuple[int, bytes, tuple[int, int], int]]:
    """(partition, value, source, leg) of each record that this input leads to."""
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    source, value = (partition, offset), message.value() or b""
    if plan.kind == "copy":
        return [(partition, value, source, 0)]
    transfer = json.loads(value)
    legs = ((transfer["from"], -transfer["amount"]), (transfer["to"], transfer["amount"]))
    return [
        (account % plan.partitions, json.dumps({"account": account, "amount": amount}).encode(), source, leg)
        for leg, (account, amount) in enumerate(legs)
    ]


def tell(kind: str, what: str) -> None:
    # One write per line: a process that is killed leaves no half of one behind.
    os.write(1, f"{kind} {what}\n".encode())


if __name__ == "__main__":
    main(Plan(**json.loads(sys.argv[1])))
