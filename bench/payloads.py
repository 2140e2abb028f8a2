"""The records that are sent: JSON events of exactly one size, alike in shape and different in content.

They compress about as such events do (lz4 some 2 ×, zstd some 3 ×). They are made once per run, from a fixed seed, so
that every side and every run gets the same bytes. There are more of them than a batch holds, or a compressor would
find the second copy.
"""

from __future__ import annotations

import json
import random
import string
from collections.abc import Iterator
from pathlib import Path

RECORD_BYTES = 1000
RECORD_COUNT = 20_000
_SEED = 20_240_401

_PATHS = ["/", "/cart", "/checkout", "/search", "/product/{n}", "/account/orders/{n}", "/api/v2/items/{n}/reviews"]
_AGENTS = [
    "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.5 Safari/605",
    "okhttp/4.12.0",
]
_WORDS = ["blue", "winter", "jacket", "size", "large", "waterproof", "sale", "new", "running", "shoes", "kids", "wool"]


def write_payloads(path: Path, *, record_bytes: int = RECORD_BYTES, record_count: int = RECORD_COUNT) -> None:
    """Writes the records one after another, without anything in between."""
    with path.open("wb") as file:
        for record in records(record_bytes=record_bytes, record_count=record_count):
            file.write(record)


def records(*, record_bytes: int = RECORD_BYTES, record_count: int = RECORD_COUNT) -> Iterator[bytes]:
    rng = random.Random(_SEED)
    for index in range(record_count):
        yield _record(rng, index, record_bytes)


def _record(rng: random.Random, index: int, record_bytes: int) -> bytes:
    event = {
        "event_id": f"{rng.getrandbits(128):032x}",
        "sequence": index,
        "timestamp": 1_700_000_000_000 + index * 7 + rng.randrange(7),
        "type": rng.choice(["page_view", "click", "add_to_cart", "purchase", "search"]),
        "user": {
            "id": rng.randrange(10**9),
            "session": f"{rng.getrandbits(64):016x}",
            "country": rng.choice(["DE", "FR", "US", "JP"]),
        },
        "request": {
            "path": rng.choice(_PATHS).format(n=rng.randrange(10**6)),
            "agent": rng.choice(_AGENTS),
            "ip": ".".join(str(rng.randrange(256)) for _ in range(4)),
            "duration_ms": round(rng.expovariate(1 / 80), 3),
        },
        "query": " ".join(rng.choices(_WORDS, k=rng.randrange(2, 9))),
        "items": [
            {
                "sku": f"SKU-{rng.randrange(10**7):07d}",
                "quantity": rng.randrange(1, 5),
                "price": rng.randrange(99, 99999) / 100,
            }
            for _ in range(rng.randrange(1, 5))
        ],
    }
    text = json.dumps(event, separators=(",", ":"))
    room = record_bytes - len(text) - len(',"trace":""')
    assert room >= 0, f"a record of {record_bytes} bytes is too small for the event"
    trace = "".join(rng.choices(string.ascii_letters + string.digits, k=room // 2)) + " " * (room - room // 2)
    record = f'{text[:-1]},"trace":"{trace}"}}'.encode()
    assert len(record) == record_bytes
    return record
