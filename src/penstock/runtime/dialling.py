"""What can go wrong while a connection is opened, as one kind of error."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["only_connection_errors"]


@contextmanager
def only_connection_errors(host: str, port: int) -> Iterator[None]:
    """Turn whatever the resolver and the socket make of a strange address into ConnectionError.

    A host of 64 letters is a UnicodeError in `getaddrinfo`, a port of 65,536 an OverflowError, a NUL in a name a
    ValueError. Hosts come from other nodes, so no caller may be surprised by any of these.
    """
    try:
        yield
    except (ConnectionError, TimeoutError):
        raise
    except (OSError, ValueError, OverflowError, TypeError) as error:
        number = error.errno if isinstance(error, OSError) and error.errno else errno.EADDRNOTAVAIL
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConnectionError(number, f"cannot connect to {host!r}, port {port}: {reason}") from error
