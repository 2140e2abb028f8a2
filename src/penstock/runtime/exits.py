"""The exit codes of a broker. They follow sysexits(3), so that supervisors can tell them apart."""

from __future__ import annotations

__all__ = [
    "EXIT_BUG",
    "EXIT_CONFIG",
    "EXIT_INTERRUPTED",
    "EXIT_IN_USE",
    "EXIT_OK",
    "EXIT_STORAGE",
    "EXIT_UNAVAILABLE",
    "EXIT_USAGE",
]

EXIT_OK = 0
"""Asked to stop, and stopped cleanly."""

EXIT_USAGE = 2
"""The command line is wrong."""

EXIT_UNAVAILABLE = 69
"""A listener cannot bind: the port is in use, or the address does not belong to this machine."""

EXIT_BUG = 70
"""An internal error: acknowledged records are safe, and the log says where it happened."""

EXIT_STORAGE = 74
"""The disk failed (an I/O error, or no space). Check the disk before restarting, or data may be lost."""

EXIT_IN_USE = 75
"""Another process holds the data directory."""

EXIT_CONFIG = 78
"""The configuration is wrong or incomplete; the message names the property."""

EXIT_INTERRUPTED = 130
"""Interrupted twice: stopped at once, like a crash."""
