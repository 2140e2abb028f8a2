"""One module per API, each headed by what it does and what every version changed.

Adding an API: a row in `penstock.wire.apis`, and a module here that is named after it. Its `serve` gets the broker
(`Node`), the `Request` and the decoded body, and returns the response, an awaitable of it, or what a coordinator was
asked. It raises `KafkaError` to refuse the whole request. What the active controller decides (`is_forwarded` in the
table) has a `decide` instead, which gets a `ControllerNode`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from penstock.broker.apis import absent_features, administrative
from penstock.broker.net.request import Request
from penstock.broker.node import Node
from penstock.coordinators.host import PendingReply
from penstock.wire.apis import SERVED, ApiKey
from penstock.wire.codec import Message

Serve = Callable[[Node, Request, Any], Message | PendingReply | Awaitable[Message]]

RAW = (ApiKey.PRODUCE, ApiKey.FETCH)
"""They read their own frames: `penstock.broker.server` adds them."""


def handlers() -> dict[ApiKey, Serve]:
    """Of every API that the codec decodes."""
    found: dict[ApiKey, Serve] = {key: absent_features.answering(key) for key in absent_features.ANSWERS}
    for key, row in SERVED.items():
        if row.is_forwarded:
            found[key] = administrative.named_after(row, "serve", administrative.serve)
        elif key not in found and key not in RAW:
            found[key] = administrative.named_after(row, "serve")
    return found
