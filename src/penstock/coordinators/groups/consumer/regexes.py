"""Subscriptions by regular expression: finds the topics that an expression currently matches.

Expressions come from clients and run in the coordinator, so they are RE2's (as in Kafka): a match takes time linear in
the topic's name for any expression, and memory is bounded. An expression that is too long, or too large to compile
within the bound, is refused like one with a syntax error.

An expression is matched against all topics once, when the first member of the shard subscribes to it, in slices that do
not block the loop. From then on only created and deleted topics are checked. All groups share the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, Protocol

import re2

from penstock.coordinators.shard import TimerKey, Turn
from penstock.metadata import MetadataDelta
from penstock.wire.errors import ErrorCode, KafkaError

REGEX_BYTES_MAX: Final = 10_000
REGEX_MEMORY_BYTES_MAX: Final = 1 << 20
"""Limit for the compiled expression and RE2's caches for it."""

# The size of a program bounds the cost of one name. The larger the program, the fewer names per slice, so that a slice
# takes about a millisecond for usual expressions and tens of milliseconds for the worst ones.
SLICE_WORK_MAX: Final = 20_000
SLICE_NAMES_MIN: Final = 10
SLICE_NAMES_MAX: Final = 1_000


class Pattern(Protocol):
    """A compiled expression."""

    programsize: int

    def fullmatch(self, text: bytes) -> object | None: ...


def compile_regex(regex: str) -> Pattern:
    """Raises INVALID_REGULAR_EXPRESSION."""
    encoded = regex.encode()
    if len(encoded) > REGEX_BYTES_MAX:
        raise _invalid(f"{regex[:40]}…", f"it has {len(encoded)} bytes, at most {REGEX_BYTES_MAX} are allowed")
    options = re2.Options()
    options.max_mem = REGEX_MEMORY_BYTES_MAX
    options.never_capture = True
    options.log_errors = False
    try:
        pattern: Pattern = re2.compile(encoded, options)
        return pattern
    except re2.error as error:
        reason = error.args[0] if error.args else "unknown error"
        raise _invalid(regex, reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)) from None


def _invalid(regex: str, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {reason}.",
    )


class Expression:
    """One expression and the topics it matches."""

    __slots__ = ("_gone", "_matched", "_pattern", "_slice_names", "_sorted", "_unseen")

    def __init__(self, pattern: Pattern, names: Iterator[bytes]) -> None:
        self._pattern = pattern
        self._slice_names = min(max(SLICE_WORK_MAX // max(pattern.programsize, 1), SLICE_NAMES_MIN), SLICE_NAMES_MAX)
        self._unseen: Iterator[bytes] | None = names
        self._gone: dict[bytes, None] = {}
        """Topics deleted since the scan began."""
        self._matched: dict[str, None] = {}
        self._sorted: tuple[str, ...] | None = None

    @property
    def resolved(self) -> bool:
        return self._unseen is None

    def topics(self) -> tuple[str, ...]:
        """The matching topics, sorted; the same object until they change."""
        assert self.resolved
        if self._sorted is None:
            self._sorted = tuple(sorted(self._matched))
        return self._sorted

    def scan_slice(self) -> bool:
        """Check some more topics. True when all have been checked."""
        assert self._unseen is not None
        names = list(islice(self._unseen, self._slice_names))
        for name in names:
            if self._pattern.fullmatch(name) and name not in self._gone:
                self._matched[name.decode()] = None
        if len(names) == self._slice_names:
            return False
        self._unseen = None
        self._gone.clear()
        return True

    def created(self, name: str) -> bool:
        """A topic was created. True if it matches."""
        encoded = name.encode()
        if not self._pattern.fullmatch(encoded):
            return False
        self._gone.pop(encoded, None)
        self._matched[name] = None
        self._sorted = None
        return True

    def deleted(self, name: str) -> bool:
        if not self.resolved:
            self._gone[name.encode()] = None
        if name not in self._matched:
            return False
        del self._matched[name]
        self._sorted = None
        return True


class Expressions:
    """All expressions that groups of a shard subscribe to. Not durable: groups store the topics they use."""

    def __init__(self, on_resolved: Callable[[Turn, str], None]) -> None:
        self._on_resolved = on_resolved
        self._expressions: dict[str, Expression] = {}
        self.version = 0
        """Grows whenever the topics of any expression change."""

    def topics(self, turn: Turn, regex: str) -> tuple[str, ...] | None:
        """The topics that match now. None while they are being determined; `on_resolved` is called afterwards."""
        expression = self._expressions.get(regex)
        if expression is None:
            expression = Expression(compile_regex(regex), turn.image.topics_by_name.keys())
            self._expressions[regex] = expression
            if not expression.scan_slice():
                turn.set_timer(("regex", regex), 0, self._scan)
        return expression.topics() if expression.resolved else None

    def forget(self, regex: str) -> None:
        """Drop an expression that no group subscribes to any more."""
        self._expressions.pop(regex, None)

    def on_image(self, delta: MetadataDelta) -> None:
        if not self._expressions:
            return
        changed = False
        for expression in self._expressions.values():
            for topic in delta.topics_deleted:
                changed |= expression.deleted(topic.name)
            for topic in delta.topics_created:
                changed |= expression.created(topic.name)
        self.version += changed

    def _scan(self, turn: Turn, key: TimerKey) -> None:
        regex = key[1]
        expression = self._expressions.get(regex)
        if expression is None or expression.resolved:
            return
        if expression.scan_slice():
            self._on_resolved(turn, regex)
        else:
            turn.set_timer(("regex", regex), 0, self._scan)
