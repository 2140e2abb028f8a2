"""Requests and responses, as handlers see them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"

REASONS = {
    200: "OK",
    201: "Created",
    202: "Accepted",
    204: "No Content",
    301: "Moved Permanently",
    302: "Found",
    304: "Not Modified",
    307: "Temporary Redirect",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    406: "Not Acceptable",
    408: "Request Timeout",
    409: "Conflict",
    411: "Length Required",
    412: "Precondition Failed",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    422: "Unprocessable Content",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Service Unavailable",
    504: "Gateway Timeout",
    505: "HTTP Version Not Supported",
}


@dataclass(slots=True, frozen=True, kw_only=True)
class HttpRequest:
    method: str
    path: str
    """The path without the query, still percent-encoded. Named parts of a route are decoded in `values`."""
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers by lower-case name. Repeated headers are joined by a comma."""
    body: bytes = b""
    values: Mapping[str, str] = field(default_factory=dict)
    """The named parts of the path: the route `/subjects/{subject}` has one called `subject`."""
    keep_alive: bool = True

    def parameters(self) -> dict[str, list[str]]:
        """The query, decoded. HttpError(400) if it is not UTF-8."""
        # Imported here because few requests have a query, and those of a broker never do.
        from urllib.parse import parse_qs

        try:
            return parse_qs(self.query, keep_blank_values=True, errors="strict", max_num_fields=100)
        except ValueError as error:
            raise HttpError(400, f"the query cannot be read: {error}") from None

    def json(self) -> object:
        """The body, parsed. HttpError(400) if it is not JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise HttpError(400, f"the body is not JSON: {error}") from None


@dataclass(slots=True, frozen=True)
class HttpResponse:
    body: bytes = b""
    status: int = 200
    content_type: str = TEXT
    headers: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of_json(cls, value: object, status: int = 200, headers: tuple[tuple[str, str], ...] = ()) -> HttpResponse:
        return cls(json.dumps(value).encode(), status, JSON, headers)

    def encode(self, *, keep_alive: bool, head_only: bool = False) -> bytes:
        """The whole message. With `head_only`, for HEAD, the length is given but the body omitted."""
        assert self.status in REASONS, f"no reason phrase for the status {self.status}"
        lines = [f"HTTP/1.1 {self.status} {REASONS[self.status]}"]
        if self.status not in (204, 304):
            lines += [f"Content-Type: {self.content_type}", f"Content-Length: {len(self.body)}"]
        lines += [f"{name}: {_one_line(text)}" for name, text in self.headers]
        lines += [f"Connection: {'keep-alive' if keep_alive else 'close'}", "", ""]
        head = "\r\n".join(lines).encode("latin-1", "replace")
        return head if head_only else head + self.body


class HttpError(Exception):
    """Raised to respond with an error. `code` is the service's own error number, if it has finer ones than HTTP."""

    def __init__(
        self, status: int, message: str, *, code: int | None = None, headers: tuple[tuple[str, str], ...] = ()
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = status if code is None else code
        self.headers = headers

    def response(self) -> HttpResponse:
        return HttpResponse.of_json({"error_code": self.code, "message": self.message}, self.status, self.headers)


def _one_line(text: str) -> str:
    """A header value without line breaks, so that it cannot inject another header."""
    return text.replace("\r", " ").replace("\n", " ")
