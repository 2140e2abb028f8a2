"""How a run is doing, in a file that other terminals can read."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path

from penstock.pipeline.checkpoints import is_held, local_path, replace_text
from penstock.pipeline.progress import QueryFigures

FILE_NAME = "penstock-status.json"
LOG_NAME = "penstock-spark.log"
FORMAT = 1


@dataclass
class RunStatus:
    """One run of a pipeline."""

    pipeline: str
    checkpoint: str
    trigger: str
    master: str = ""
    state: str = "starting"
    """starting, running, stopping, stopped, finished, failed; or, as read by another process, lost."""
    doing: str = ""
    """While it is starting: which step, such as `starting Spark`."""
    started: str = ""
    updated: str = ""
    host: str = ""
    pid: int = 0
    file: str = ""
    metrics: str = ""
    error: str = ""
    queries: dict[str, QueryFigures] = field(default_factory=dict)

    def as_json(self) -> dict[str, object]:
        return {"format": FORMAT, **asdict(self), "queries": [asdict(one) for one in self.queries.values()]}


def now_text() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def status_path(checkpoint: str) -> Path | None:
    """Where the status of a run with this checkpoint is; None for a checkpoint on another machine."""
    directory = local_path(checkpoint)
    return directory / FILE_NAME if directory is not None else None


def log_path(checkpoint: str) -> Path | None:
    """Where Spark's processes write what would otherwise be on the terminal; None as for `status_path`."""
    directory = local_path(checkpoint)
    return directory / LOG_NAME if directory is not None else None


def write_status(path: Path, status: RunStatus) -> None:
    status.updated = now_text()
    replace_text(path, json.dumps(status.as_json(), indent=1) + "\n")


def read_status(path: Path) -> RunStatus | None:
    """The last status, or None where there was never a run; ValueError for a file that is none."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ValueError(f"{path} is no status of a pipeline")
    queries = {}
    for one in document.get("queries", []):
        figures = QueryFigures(**_known(one, QueryFigures))  # type: ignore[arg-type]
        queries[figures.name] = figures
    status = RunStatus(**{**_known(document, RunStatus), "queries": queries})  # type: ignore[arg-type]
    if status.state in ("starting", "running", "stopping") and not _is_alive(status, path.parent):
        status.state = "lost"
        status.error = status.error or f"process {status.pid} is gone, and did not say why"
    return status


def _is_alive(status: RunStatus, checkpoint: Path) -> bool:
    """Whether the run holds its checkpoint still; one on another machine is believed."""
    return status.host != socket.gethostname() or is_held(checkpoint) is not False


def _known(document: Mapping[str, object], kind: type) -> dict[str, object]:
    """What this version knows of what another one wrote."""
    names = {one.name for one in fields(kind)}
    return {name: value for name, value in document.items() if name in names}
