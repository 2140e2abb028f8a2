"""The directories of a local cluster's nodes: `penstock up --brokers N --data DIR` keeps node i in DIR/node-i."""

from __future__ import annotations

from pathlib import Path

NODE_MARK = "meta.properties"
"""The file that every formatted data directory has."""


def nodes_in(data: Path) -> dict[int, Path]:
    """The directories of the nodes whose data is kept below a directory, by id."""
    found = {}
    for path in data.glob(f"node-*/{NODE_MARK}"):
        number = path.parent.name.removeprefix("node-")
        if number.isascii() and number.isdigit():
            found[int(number)] = path.parent
    return dict(sorted(found.items()))
