"""How a command fails."""

from __future__ import annotations

from penstock.cli import exit_codes


class CliError(Exception):
    """Ends a command: `message` says what happened, `hint` what to do next."""

    def __init__(self, message: str, code: int = exit_codes.FAILED, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.hint = hint
