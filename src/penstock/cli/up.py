"""`penstock up`: the local platform in one command."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.cli.server import up


def main(arguments: Sequence[str]) -> int:
    return up(arguments)
