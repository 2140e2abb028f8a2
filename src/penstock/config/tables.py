"""How properties are declared: once, in a class that is both the table and the type of the values.

    class Retention(Section, title="Retention"):
        log_retention_bytes: int = prop(
            "log.retention.bytes", LONG, -1, at_least(-1),
            "The size of a partition above which its oldest segments are removed; -1 sets no limit.",
            CLUSTER_WIDE, HIGH,
        )

The assignment declares the property: its name, type, default, limits, effect, and when it may change. The annotation
gives the type of the value that the engine reads as `config.log_retention_bytes`. Tables by name (`BROKER`), the
documentation and DescribeConfigs are generated from `Section.definitions`.

- A `Section` groups related properties. It is never instantiated: it is a base class of views, and the type of an
  argument for code that needs only these properties.
- A `View` is an immutable object with the values of its sections. `BrokerConfig` is the view of all broker sections,
  `GroupConfig` of those that a group coordinator reads; a component declares its own by naming its sections.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self, TypeAlias, TypeVar, dataclass_transform

from penstock.config.definitions import Definition, Importance, Kind, UpdateMode, Validator, Value

_REQUIRED = object()

NoAttribute: TypeAlias = None
"""The annotation of a `folded` property: reading it is a type error."""


def prop(
    name: str,
    kind: Kind,
    default: Value,
    valid: Validator | None,
    doc: str,
    mode: UpdateMode = UpdateMode.READ_ONLY,
    importance: Importance = Importance.MEDIUM,
    **more: Any,
) -> Any:
    """Declare a property. `more` are additional fields of `Definition`."""
    return Definition(name, kind, default, valid, doc, mode, importance, **more)


def folded(*arguments: Any, **more: Any) -> Any:
    """Declare a property without an attribute: another attribute holds its value, or only its default is accepted."""
    definition: Definition = prop(*arguments, **more)
    return definition._replace(is_folded=True)


def fresh(make: Callable[[], object]) -> Any:
    """The default of an attribute that is not a property and must not be shared: each view gets a new one."""
    return _Fresh(make)


class _Fresh:
    def __init__(self, make: Callable[[], object]) -> None:
        self.make = make


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Table(type):
    """The metaclass of sections and views. It collects the declarations, and turns those of views into slots."""

    title: str
    definitions: Mapping[str, Definition]
    """Definitions by Kafka's name, those of base classes first."""
    attributes: dict[str, None]
    """The attributes of a view of this table, in order; most are properties."""
    defaults: Mapping[str, Any]
    """Default values by attribute, with fallbacks resolved. Mandatory attributes are missing here."""
    makers: Mapping[str, Callable[[], object]]
    """Factories of defaults that each view gets anew."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], *, title: str = "") -> Table:
        definitions: dict[str, Definition] = {}
        defaults: dict[str, object] = {}
        makers: dict[str, Callable[[], object]] = {}
        attributes: dict[str, None] = {}
        for base in bases:
            if isinstance(base, Table):
                definitions.update(base.definitions)
                defaults.update(base.defaults)
                makers.update(base.makers)
                attributes.update(base.attributes)
        for attribute in namespace.get("__annotations__", ()):
            value = namespace.pop(attribute, _REQUIRED)
            if isinstance(value, Definition):
                assert value.name not in definitions, f"{value.name} is declared twice"
                definitions[value.name] = value if value.is_folded else value._replace(attribute=attribute)
                if value.is_folded:
                    continue
                value = value.scaled(value.default)
            attributes[attribute] = None
            if isinstance(value, _Fresh):
                makers[attribute] = value.make
            elif value is not _REQUIRED:
                defaults[attribute] = value
        for definition in definitions.values():
            if definition.fallbacks:
                last, factor = definition.fallbacks[-1]
                value = definitions[last].default
                assert isinstance(value, int), f"the last fallback of {definition.name} has no default"
                defaults[definition.attribute] = value * factor
        has_values = any(getattr(base, "HAS_VALUES", False) for base in bases)
        namespace["__slots__"] = tuple(attributes) if has_values else ()
        table = super().__new__(mcs, name, bases, namespace)
        table.title = title
        table.definitions = definitions
        table.defaults = defaults
        table.makers = makers
        table.attributes = attributes
        return table

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], *, title: str = "") -> None:
        super().__init__(name, bases, namespace)


class Section(metaclass=Table):
    """A group of related properties."""


class View(Section):
    """Values of properties, as attributes. Immutable: a change creates a new view."""

    HAS_VALUES = True

    def __init__(self, **values: object) -> None:
        """`values` by attribute; missing properties get their defaults."""
        self._fill(values)

    def _fill(self, values: Mapping[str, object]) -> None:
        table = type(self)
        complete = {**table.defaults, **values}
        for attribute, make in table.makers.items():
            if attribute not in complete:
                complete[attribute] = make()
        if complete.keys() != table.attributes.keys():
            wrong = ", ".join(sorted(complete.keys() ^ table.attributes.keys()))
            raise TypeError(f"{table.__name__}: unknown or missing: {wrong}")
        fill = object.__setattr__
        for attribute, value in complete.items():
            fill(self, attribute, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a config is immutable; resolve a new one to change {name}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, View) and type(other) is type(self) and self.as_dict() == other.as_dict()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Only properties, and no secrets, because it appears in logs."""
        attributes = [d.attribute for d in type(self).definitions.values() if not d.is_folded and not d.sensitive]
        told = ", ".join(f"{attribute}={getattr(self, attribute)!r}" for attribute in attributes)
        return f"{type(self).__name__}({told})"

    @classmethod
    def of(cls, values: Mapping[str, object]) -> Self:
        """A view of values whose types are already checked or known only at run time."""
        view = cls.__new__(cls)
        view._fill(values)
        return view

    @classmethod
    def part_of(cls, whole: Section, **more: object) -> Self:
        """A view of this class with values from another view; `more` are attributes that are not properties."""
        attributes = [definition.attribute for definition in cls.definitions.values() if not definition.is_folded]
        return cls.of({attribute: getattr(whole, attribute) for attribute in attributes} | more)

    def as_dict(self) -> dict[str, object]:
        return {attribute: getattr(self, attribute) for attribute in type(self).attributes}


V = TypeVar("V", bound=View)


def replace(view: V, **changes: object) -> V:
    """A copy of the view with these changes."""
    return view.of(view.as_dict() | changes)
