"""Fetches a small document that the operator's configuration names: key sets of token issuers. Blocks; for threads."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener, url2pathname

__all__ = ["fetch_url"]


class _NoRedirects(HTTPRedirectHandler):
    """A redirect could lead to any address that this machine reaches."""

    def redirect_request(self, *arguments: Any) -> None:
        return None


def fetch_url(url: str, bytes_max: int, timeout_ms: float) -> bytes:
    """Raises OSError or ValueError. `file:`, `http:` and `https:` only."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        with open(url2pathname(parts.path), "rb") as file:
            data = file.read(bytes_max + 1)
    elif parts.scheme in ("http", "https") and parts.hostname:
        request = Request(url, headers={"Accept": "application/json"})
        with build_opener(_NoRedirects).open(request, timeout=timeout_ms / 1000) as response:
            data = response.read(bytes_max + 1)
    else:
        raise ValueError("the URL must begin with https://, http:// or file:///")
    if len(data) > bytes_max:
        raise ValueError(f"the document is larger than {bytes_max} bytes")
    return bytes(data)
