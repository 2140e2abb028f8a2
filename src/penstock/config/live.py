"""A broker's configuration while it runs: the current values, and the subscribers to notify of changes.

    live.subscribe(self.service.configure, Connections)

A component names the sections it reads. It is called with the new configuration when one of their properties changes.
So the code that applies a change need not know which components use it.
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
        """Call back after a change to a property of these sections or names. Without interests, after any change.

        Subscribers are called in the order of subscription. A section must have a property that can change at run time.
        """
        names: list[str] = []
        for interest in interests:
            found = [interest] if isinstance(interest, str) else list(interest.definitions)
            changing = [name for name in found if SETTABLE[name].mode is not UpdateMode.READ_ONLY]
            assert changing, f"no property of {interest} can change at run time"
            names += changing
        self._subscribers.append((subscriber, frozenset(names or SETTABLE)))

    def update(self, dynamic_default: Mapping[str, str], dynamic_broker: Mapping[str, str]) -> tuple[str, ...]:
        """Apply new dynamic settings and notify the subscribers concerned; returns the names of the changed properties.

        After a ConfigError everything is as before.
        """
        before, self.current = self.current, self.current.with_dynamic(dynamic_default, dynamic_broker)
        changed = self.current.changed_since(before)
        for subscriber, names in list(self._subscribers):
            # Descriptions (sources of values, warnings) may change without a value. Subscribers to everything are
            # notified of that, too.
            if len(names) == len(SETTABLE) or not names.isdisjoint(changed):
                subscriber(self.current)
        return changed

    def listeners_of(self, name: str) -> int:
        """The number of subscribers to this property by section or name, not counting subscribers to everything."""
        return sum(name in names for _, names in self._subscribers if len(names) < len(SETTABLE))
