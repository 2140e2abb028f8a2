"""Two brokers, Apache Kafka and Penstock, that are asked the same and must answer the same."""

from __future__ import annotations

import difflib
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from support.kafka_tools import KafkaTools, Said
from support.server_process import ServerProcess

T = TypeVar("T")
WAIT_TIMEOUT_S = 60

_ERROR = re.compile(r"org\.apache\.kafka\.common\.errors\.\w+")

_TIME = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,]\d{3}"
_NORMALISED = (
    # Tools print where in their own code they failed, which depends on how often that code has run.
    (re.compile(r"^\s+(at \S+\(.*\)|\.\.\. \d+ more)\n?", re.MULTILINE), ""),
    # What a tool logs comes with the time; the rest of the line is compared.
    (re.compile(rf"^\[?{_TIME}\]? ", re.MULTILINE), ""),
    (re.compile(rf"{_TIME}(Z|[+-]\d\d:?\d\d)?"), "TIME"),
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "UUID"),
    (re.compile(r"(TopicId: |\"topicId\":\")[\w-]{22}"), r"\1ID"),
    # Properties that Kafka does not have.
    (re.compile(r"^ *penstock\..*\n", re.MULTILINE), ""),
    # Tables are as wide as the longest id in them.
    (re.compile(r"[ \t]+"), " "),
    (re.compile(r" $", re.MULTILINE), ""),
)


@dataclass(frozen=True)
class Both:
    kafka: ServerProcess
    penstock: ServerProcess
    tools: KafkaTools

    def same(self, tool: str, *arguments: str, given: str = "", hide: tuple[tuple[str, ...], ...] = ()) -> Said:
        """Runs the tool against both; what it says is the same, and is returned.

        `hide` has, for each broker, what else must differ between them.
        """
        expected, got = (
            self.run(server, tool, *arguments, given=given, hide=hide[index] if hide else ())
            for index, server in enumerate((self.kafka, self.penstock))
        )
        asked = f"{tool} {' '.join(arguments)}"
        assert got == expected, f"{asked}: Penstock's answer is not Kafka's:\n{_difference(expected, got)}"
        return got

    def refused(self, tool: str, *arguments: str) -> None:
        """Both refuse, with the same error. The words may differ: Penstock's also say what to do."""
        said = self.each(lambda server: self.run(server, tool, *arguments))
        kafka, penstock = ((one.code, *sorted(set(_ERROR.findall(one.output + one.errors)))) for one in said)
        asked = f"{tool} {' '.join(arguments)}"
        assert penstock == kafka, f"{asked}: Penstock's refusal is not Kafka's:\n{_difference(*said)}"
        assert penstock[0] != 0, asked

    def wait_for(self, words: str, tool: str, *arguments: str) -> None:
        """Until both say so."""
        deadline_s = time.monotonic() + WAIT_TIMEOUT_S
        while not all(words in said.output for said in self.each(lambda server: self.run(server, tool, *arguments))):
            assert time.monotonic() < deadline_s, f"{tool} {' '.join(arguments)} does not say: {words}"

    def same_about(self, word: str, tool: str, *arguments: str) -> list[str]:
        """As `same`, but only for the lines that have the word: other tests leave other lines."""
        expected, got = (
            [line for line in self.run(server, tool, *arguments).output.splitlines() if word in line]
            for server in (self.kafka, self.penstock)
        )
        assert got == expected, f"{tool} {' '.join(arguments)}: Penstock's answer is not Kafka's"
        return got

    def run(
        self, server: ServerProcess, tool: str, *arguments: str, given: str = "", hide: tuple[str, ...] = ()
    ) -> Said:
        """Runs the tool against one of them, and returns what it said in normal form."""
        if tool != "kafka-dump-log":
            arguments = ("--bootstrap-server", server.bootstrap, *arguments)
        said = self.tools.run(tool, *arguments, given=given)
        return Said(said.code, _normal(said.output, server, hide), _normal(said.errors, server, hide))

    def each(self, action: Callable[[ServerProcess], T]) -> tuple[T, T]:
        """Does something to both; the results in the order Kafka, Penstock."""
        return action(self.kafka), action(self.penstock)


def _normal(text: str, server: ServerProcess, hide: tuple[str, ...]) -> str:
    for word in (*hide, str(server.data_dir)):
        text = text.replace(word, "HIDDEN")
    text = text.replace(server.bootstrap, "BROKER").replace(str(server.port), "PORT")
    for pattern, replacement in _NORMALISED:
        text = pattern.sub(replacement, text)
    return text.strip()


def _difference(kafka: Said, penstock: Said) -> str:
    before, after = (
        f"exit code {said.code}\n{said.output}\n--- errors\n{said.errors}".splitlines() for said in (kafka, penstock)
    )
    return "\n".join(difflib.unified_diff(before, after, "Kafka", "Penstock", lineterm=""))
