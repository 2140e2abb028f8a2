"""Parses bytes into requests.

The reader is strict where leniency is dangerous (RFC 9112, section 11.2): a length is a plain number and occurs once,
a header name is followed directly by its colon, lines end with CRLF, and no header spans two lines. It is lenient where
nothing depends on it: HTTP/1.1 requires a Host header, which is not used here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from penstock.telemetry.http.messages import HttpError, HttpRequest

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TARGET = re.compile(r"/[\x21-\x7e]*")
_VERSION = re.compile(r"HTTP/[0-9]\.[0-9]")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_LENGTH_DIGITS_MAX = 15
_END = b"\r\n\r\n"


class Head(NamedTuple):
    """A request without its body, and the body's length."""

    request: HttpRequest
    body_bytes: int


class RequestReader:
    """Collects received bytes and returns complete requests. After an HttpError it must not be used again."""

    def __init__(self, head_bytes_max: int) -> None:
        self._head_bytes_max = head_bytes_max
        self._received = bytearray()
        self._head: Head | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no bytes of another request have arrived."""
        return self._head is None and not self._received

    def feed(self, data: memoryview) -> None:
        self._received += data

    def take(self, accept: Callable[[Head], HttpRequest]) -> HttpRequest | None:
        """The next complete request; None if it has not fully arrived. `accept` is called once, when the head is
        complete: it routes the request, and raises HttpError if the body is not worth waiting for."""
        if self._head is None:
            end = self._received.find(_END, 0, self._head_bytes_max)
            if end < 0:
                if len(self._received) >= self._head_bytes_max:
                    raise HttpError(431, f"the request head is longer than {self._head_bytes_max} bytes")
                return None
            head = parse_head(bytes(self._received[:end]))
            self._head = head._replace(request=accept(head))
            del self._received[: end + len(_END)]
        request, size = self._head
        if len(self._received) < size:
            return None
        self._head = None
        if not size:
            return request
        body = bytes(self._received[:size])
        del self._received[:size]
        return replace(request, body=body)


def parse_head(data: bytes) -> Head:
    """Parse the request line and the headers, without the empty line after them. Raises HttpError."""
    first, *lines = data.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or _TOKEN.fullmatch(words[0]) is None or _VERSION.fullmatch(words[2]) is None:
        raise HttpError(400, "this is not an HTTP request")
    method, target, version = words
    if version not in ("HTTP/1.1", "HTTP/1.0"):
        raise HttpError(505, "only HTTP/1.1 and HTTP/1.0 are supported")
    if _TARGET.fullmatch(target) is None:
        raise HttpError(400, "the request target must be a path")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or _TOKEN.fullmatch(name) is None or _CONTROL.search(value) is not None:
            raise HttpError(400, "a header line is malformed")
        name, value = name.lower(), value.strip(" \t")
        if name in headers and name in ("content-length", "host"):
            raise HttpError(400, f"the header {name} occurs twice")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    path, _, query = target.partition("?")
    request = HttpRequest(
        method=method, path=path, query=query, headers=headers, keep_alive=_keeps_alive(version, headers)
    )
    return Head(request, _body_bytes(headers))


def _keeps_alive(version: str, headers: dict[str, str]) -> bool:
    options = [option.strip() for option in headers.get("connection", "").lower().split(",")]
    return "close" not in options if version == "HTTP/1.1" else "keep-alive" in options


def _body_bytes(headers: dict[str, str]) -> int:
    if "transfer-encoding" in headers:
        raise HttpError(411, "chunked bodies are not supported; send a Content-Length")
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit()):
        raise HttpError(400, "the header content-length is not a number")
    if len(length) > _LENGTH_DIGITS_MAX:
        raise HttpError(413, "the body is too large")
    return int(length)
