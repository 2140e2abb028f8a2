"""The demo's directory: what belongs to the demo, what belongs to the user, and what a new run may replace.

    demo-data/
        penstock-demo.json    marks the directory as a demo's
        broker/               the broker's data: the demo's topics, and those that the user created beside them
        tables/               the demo's tables (`TABLES`), and the user's
        checkpoints/          the same, for the demo's queries (`QUERIES`)
        logs/

A run needs its own topics and tables empty, or its balance could not add up. It replaces exactly those, by name, and
only after the user agreed. Everything else in the directory is the user's and stays.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.demo.topics import TOPICS

MARK: Final = "penstock-demo.json"
PARTS: Final = ("broker", "tables", "checkpoints", "logs")
TABLES: Final = ("events", "hours", "visits")
QUERIES: Final = ("archive", "hours", "visits")

_PARTITION: Final = re.compile(r"(.+)-\d+")


class DirectoryRefused(Exception):
    """The directory cannot be used for a demo."""


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What an earlier demo left in its directory."""

    topics: tuple[str, ...] = ()
    tables: tuple[Path, ...] = ()
    checkpoints: tuple[Path, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.topics or self.tables or self.checkpoints)

    def __str__(self) -> str:
        kinds = (
            ("topics", self.topics),
            ("tables", [path.name for path in self.tables]),
            ("checkpoints", [path.name for path in self.checkpoints]),
        )
        return "; ".join(f"the {kind} {', '.join(names)}" for kind, names in kinds if names)

    def remove_files(self) -> None:
        """Removes the tables and checkpoints. The topics are the broker's to delete."""
        for path in (*self.tables, *self.checkpoints):
            shutil.rmtree(path)


def find_leftovers(data: Path) -> Leftovers:
    """Looks for an earlier demo; changes nothing. Raises DirectoryRefused if the directory is not free for a demo."""
    if data.exists() and any(data.iterdir()) and not (data / MARK).exists():
        raise DirectoryRefused(f"{data} is not empty, and it is not the directory of an earlier demo")
    if pid := _running_broker(data / "broker" / "penstock.pid"):
        raise DirectoryRefused(f"{data} is in use: a broker with the process id {pid} runs on it. Stop it first")
    stored = {found[1] for path in (data / "broker").glob("*/") if (found := _PARTITION.fullmatch(path.name))}
    return Leftovers(
        topics=tuple(topic.name for topic in TOPICS if topic.name in stored),
        tables=tuple(path for name in TABLES if (path := data / "tables" / name).is_dir()),
        checkpoints=tuple(path for name in QUERIES if (path := data / "checkpoints" / name).is_dir()),
    )


def prepare(data: Path) -> None:
    """Creates the parts of the directory that are missing, and marks it as a demo's."""
    for part in PARTS:
        (data / part).mkdir(parents=True, exist_ok=True)
    (data / MARK).write_text(json.dumps({"made_by": "penstock demo"}) + "\n", encoding="utf-8")


def _running_broker(pid_path: Path) -> int | None:
    try:
        pid = int(pid_path.read_text(encoding="ascii"))
        os.kill(pid, 0)
    except (OSError, ValueError):
        return None
    return pid
