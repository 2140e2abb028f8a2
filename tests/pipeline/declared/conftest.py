"""Commands are run here as in the tests of the command line."""

from __future__ import annotations

from cli.conftest import run

__all__ = ["run"]
