"""Turns every failure to open a connection into one kind of error."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["only_connection_errors"]


@contextmanager
def only_connection_errors(host: str, port: int) -> Iterator[None]:
    """Converts any error of the resolver or the socket into ConnectionError.

    A host of 64 letters causes a UnicodeError in `getaddrinfo`, a port of 65,536 an OverflowError, a NUL in a name a
    ValueError. Hosts come from other nodes, so callers must not have to expect these.
    """
    try:
        yield
    except (ConnectionError, TimeoutError):
        raise
    except (OSError, ValueError, OverflowError, TypeError) as error:
        number = error.errno if isinstance(error, OSError) and error.errno else errno.EADDRNOTAVAIL
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConnectionError(number, f"cannot connect to {host!r}, port {port}: {reason}") from error
