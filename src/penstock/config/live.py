"""A broker's configuration while it runs: the one in force, and whoever wants to hear of changes.

    live.subscribe(self.service.configure, Connections)

A component names the sections it reads, and is called with the new configuration when one of their properties changes.
So the place that learns of a change need not know who is concerned by it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.config.broker import BrokerConfig
from penstock.config.definitions import UpdateMode
from penstock.config.inert_table import SETTABLE
from penstock.config.tables import Section

Subscriber = Callable[[BrokerConfig], object]


class LiveConfig:
    def __init__(self, config: BrokerConfig) -> None:
        self.current = config
        self._subscribers: list[tuple[Subscriber, frozenset[str]]] = []

    def subscribe(self, subscriber: Subscriber, *interests: type[Section] | str) -> None:
        """Call back after a change of a property of these sections, or of these names. Without interests, after any.

        Subscribers are called in the order in which they came. A section must have something that can change.
        """
        names: list[str] = []
        for interest in interests:
            found = [interest] if isinstance(interest, str) else list(interest.definitions)
            changing = [name for name in found if SETTABLE[name].mode is not UpdateMode.READ_ONLY]
            assert changing, f"nothing of {interest} changes at run time"
            names += changing
        self._subscribers.append((subscriber, frozenset(names or SETTABLE)))

    def update(self, dynamic_default: Mapping[str, str], dynamic_broker: Mapping[str, str]) -> tuple[str, ...]:
        """Put other dynamic settings in force and tell those concerned; returns the names of what changed.

        ConfigError leaves everything as it is.
        """
        before, self.current = self.current, self.current.with_dynamic(dynamic_default, dynamic_broker)
        changed = self.current.changed_since(before)
        for subscriber, names in list(self._subscribers):
            # What is described (where a value comes from, warnings) may change without a value: those who asked for
            # everything hear of that as well.
            if len(names) == len(SETTABLE) or not names.isdisjoint(changed):
                subscriber(self.current)
        return changed

    def listeners_of(self, name: str) -> int:
        """How many subscribers asked for this property by its section or name, and not just for everything."""
        return sum(name in names for _, names in self._subscribers if len(names) < len(SETTABLE))
