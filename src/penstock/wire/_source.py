"""Shared by both code generators: indented lines, fresh names, and constants for the compiled function."""

from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct
from types import CodeType


class Source:
    """Python source being generated."""

    def __init__(self, namespace: dict[str, object]) -> None:
        self.namespace = namespace
        self._lines: list[str] = []
        self._depth = 0
        self._names = 0

    def add(self, *lines: str) -> None:
        self._lines.extend("    " * self._depth + line for line in lines)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.add(head)
        self._depth += 1
        yield
        self._depth -= 1

    def name(self, stem: str) -> str:
        self._names += 1
        return f"{stem}{self._names}"

    def constant(self, stem: str, value: object) -> str:
        """The name of a global of the compiled function that holds `value`; equal values share one."""
        for name, held in self.namespace.items():
            if held is value:
                return name
        name = self.name(stem)
        self.namespace[name] = value
        return name

    def method(self, formats: str, method: str) -> str:
        """The name of a global that holds a bound method of the `struct` with these formats."""
        key = f"{method}_{formats.replace('?', 'bool_')}"
        if key not in self.namespace:
            self.namespace[key] = getattr(Struct(">" + formats), method)
        return key

    @property
    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def compile(self, title: str) -> CodeType:
        return compile(self.text, f"<{title}>", "exec")
