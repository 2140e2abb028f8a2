"""Which events a node writes to its log: one level for all of them, and levels of their own for some.

A logger is named after an event, with dots for spaces: `connection.closed` writes what stands in the log as
`connection closed`. It exists once that event has happened. `root` has the level of all loggers that have none of their
own. Kafka's tools see and change them as broker loggers (KIP-412); a restart forgets the changes, as in Kafka.
"""

from __future__ import annotations

from typing import Final

from penstock.config import Alteration, AlterOperation
from penstock.runtime.eventlog import EventLog
from penstock.wire.errors import ErrorCode, KafkaError

LEVELS: Final = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")
"""Kafka's, in order. No event has a level below INFO or above ERROR."""
INFO, WARN, ERROR = (LEVELS.index(level) for level in ("INFO", "WARN", "ERROR"))
ROOT: Final = "root"
LOGGERS_MAX: Final = 1_000


class Loggers:
    """An `EventLog` that passes on the events whose logger lets them through."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._root = INFO
        self._levels: dict[str, int | None] = {}
        """Of all loggers that exist; None for those that have the level of the root."""

    # ---- events

    def info(self, event: str, **fields: object) -> None:
        if self._writes(event, INFO):
            self._log.info(event, **fields)

    def warning(self, event: str, **fields: object) -> None:
        if self._writes(event, WARN):
            self._log.warning(event, **fields)

    def error(self, event: str, **fields: object) -> None:
        if self._writes(event, ERROR):
            self._log.error(event, **fields)

    def limited(self, event: str, **fields: object) -> None:
        if self._writes(event, WARN):
            self._log.limited(event, **fields)

    def recurring(self, event: str, subject: object, **fields: object) -> None:
        # It becomes a warning if it goes on for long, so it passes wherever warnings do.
        if self._writes(event, WARN):
            self._log.recurring(event, subject, **fields)

    def _writes(self, event: str, level: int) -> bool:
        name = event.replace(" ", ".")
        own = self._levels.get(name)
        if own is None and name not in self._levels and len(self._levels) < LOGGERS_MAX:
            self._levels[name] = None
        return level >= (self._root if own is None else own)

    # ---- levels

    def levels(self) -> dict[str, str]:
        """The level in force of every logger, by name, the root first."""
        others = {name: LEVELS[self._root if level is None else level] for name, level in sorted(self._levels.items())}
        return {ROOT: LEVELS[self._root]} | others

    def alter(self, alterations: tuple[Alteration, ...], *, validate_only: bool = False) -> None:
        """All of them or none. Raises KafkaError."""
        for name, operation, level in alterations:
            self._check(name, operation, level)
        if validate_only:
            return
        for name, operation, level in alterations:
            number = LEVELS.index(level) if operation == AlterOperation.SET and level is not None else None
            if name != ROOT:
                self._levels[name] = number
            elif number is not None:
                self._root = number

    def _check(self, name: str, operation: int, level: str | None) -> None:
        if operation not in (AlterOperation.SET, AlterOperation.DELETE):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The level of a logger can be set and deleted, nothing else.")
        if name != ROOT and name not in self._levels:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
        if operation == AlterOperation.DELETE:
            if name == ROOT:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed"
                )
        elif level not in LEVELS:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"Cannot set the log level of {name} to {level}: valid log levels are {', '.join(LEVELS)}",
            )
