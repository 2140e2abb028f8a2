"""Requests that change or describe the cluster as a whole: any broker takes them, the active controller decides."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from penstock.broker.net.request import Request
from penstock.broker.node import Node
from penstock.broker.quorum.forwarding import Decide
from penstock.wire.apis import SERVED, ApiKey, ServedApi
from penstock.wire.codec import Message


def named_after(row: ServedApi, function: str, *default: Any) -> Any:
    """A function of the module that is named after an API, for example `decide` of `create_topics`."""
    return getattr(import_module(f"penstock.broker.apis.{row.module}"), function, *default)


ADMINISTRATIVE: dict[ApiKey, Decide] = {
    key: named_after(row, "decide") for key, row in SERVED.items() if row.is_forwarded
}


async def serve(node: Node, request: Request, body: Message) -> Message:
    """What a broker does with such a request."""
    response: Message = await node.administration.call(request)
    return response
