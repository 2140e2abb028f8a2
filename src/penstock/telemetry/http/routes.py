"""Which handler serves which method and path."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from penstock.telemetry.http.messages import HttpError, HttpRequest, HttpResponse

_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})?")

Handler = Callable[[HttpRequest], HttpResponse | Awaitable[HttpResponse]]
"""Returns a response, or an awaitable of one."""


class Route(NamedTuple):
    method: str
    segments: tuple[str, ...]
    handler: Handler
    body_bytes_max: int


class Routes:
    """A small set of paths. A path may have named parts, as in `/subjects/{subject}`; a path without them takes
    precedence."""

    def __init__(self) -> None:
        self._routes: list[Route] = []

    def add(self, method: str, path: str, handler: Handler, *, body_bytes_max: int = 0) -> None:
        """Serve this method and path; a larger body is refused. GET routes also serve HEAD."""
        assert path.startswith("/")
        self._routes.append(Route(method, tuple(path.split("/")[1:]), handler, body_bytes_max))
        self._routes.sort(key=lambda route: sum(_is_name(segment) for segment in route.segments))

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str]]:
        """The route and the named parts of the path. Raises HttpError (404 or 405) if there is none."""
        parts = path.split("/")[1:]
        wanted = "GET" if method == "HEAD" else method
        allowed: list[str] = []
        for route in self._routes:
            values = _match(route.segments, parts)
            if values is None:
                continue
            if route.method == wanted:
                return route, values
            allowed += [name for name in _served_as(route.method) if name not in allowed]
        if allowed:
            raise HttpError(405, f"{method} is not allowed for this path", headers=(("Allow", ", ".join(allowed)),))
        raise HttpError(404, "no such path")


def _served_as(method: str) -> tuple[str, ...]:
    return ("GET", "HEAD") if method == "GET" else (method,)


def _match(segments: tuple[str, ...], parts: list[str]) -> dict[str, str] | None:
    if len(segments) != len(parts):
        return None
    values: dict[str, str] = {}
    for segment, part in zip(segments, parts, strict=True):
        if not _is_name(segment):
            if segment != part:
                return None
        elif part:
            values[segment[1:-1]] = _decoded(part)
        else:
            return None
    return values


def _is_name(segment: str) -> bool:
    return segment.startswith("{") and segment.endswith("}")


def _decoded(part: str) -> str:
    """A part of a path without its percent-encoding."""
    try:
        return _ESCAPE.sub(_byte, part.encode("ascii")).decode()
    except ValueError:
        raise HttpError(400, "the path is not percent-encoded UTF-8") from None


def _byte(escape: re.Match[bytes]) -> bytes:
    if escape[1] is None:
        raise ValueError("a percent sign without two hexadecimal digits")
    return bytes.fromhex(escape[1].decode())
