"""Log levels: decides which events a node writes to its log.

A logger is named after an event, with dots for spaces: the logger `connection.closed` controls the event `connection
closed`. It exists once that event has happened. `root` sets the level of all loggers without a level of their own.
Kafka's tools see and change them as broker loggers (KIP-412); changes are lost at a restart, as in Kafka.
"""

from __future__ import annotations

from typing import Final

from penstock.config import Alteration, AlterOperation
from penstock.runtime.eventlog import EventLog
from penstock.wire.errors import ErrorCode, KafkaError

LEVELS: Final = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")
"""Kafka's levels, in ascending order. All events have a level from INFO to ERROR."""
INFO, WARN, ERROR = (LEVELS.index(level) for level in ("INFO", "WARN", "ERROR"))
ROOT: Final = "root"
LOGGERS_MAX: Final = 1_000


class Loggers:
    """An `EventLog` that passes on only the events that their logger's level allows."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._root = INFO
        self._levels: dict[str, int | None] = {}
        """The level of each existing logger; None if it uses the level of the root."""

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
        # A recurring event becomes a warning if it continues for long, so it passes wherever warnings do.
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
        """The effective level of every logger, by name, the root first."""
        others = {name: LEVELS[self._root if level is None else level] for name, level in sorted(self._levels.items())}
        return {ROOT: LEVELS[self._root]} | others

    def alter(self, alterations: tuple[Alteration, ...], *, validate_only: bool = False) -> None:
        """Apply all alterations or none. Raises KafkaError."""
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
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The level of a logger can only be set or deleted.")
        if name != ROOT and name not in self._levels:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
        if operation == AlterOperation.DELETE:
            if name == ROOT:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed")
        elif level not in LEVELS:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"Cannot set the log level of {name} to {level}: valid log levels are {', '.join(LEVELS)}",
            )
