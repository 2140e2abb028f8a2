"""What a reader takes from a record: an event, or the reason why there is none."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final, Literal

import msgspec

TOO_LONG: Final = 200


class ShopEvent(msgspec.Struct, frozen=True):
    """The fields that the pipelines use; others may be there and are left alone."""

    event_id: str
    kind: Literal["click", "order", "payment", "heartbeat"]
    event_time: datetime
    customer: str
    product: str | None = None
    amount_cents: int | None = None


_decoder: Final = msgspec.json.Decoder(ShopEvent)


def decode(value: bytes | None) -> ShopEvent | str:
    """The event, or why it cannot be read."""
    if value is None:
        return "the record has no value"
    try:
        return _decoder.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        # The library says which field; paths start with a dollar sign there.
        return re.sub(r"`\$\.(\w+)`", r"\1", str(error))[:TOO_LONG]
