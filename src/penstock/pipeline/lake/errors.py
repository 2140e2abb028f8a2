"""What goes wrong with tables, said once: the thing, and what to do about it."""

from __future__ import annotations


class LakeError(Exception):
    """`message` says what happened, `fix` what to do next."""

    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(f"{message}; {fix}" if fix else message)
        self.message = message
        self.fix = fix


class TableMissing(LakeError):
    """There is no table where one was expected."""


class StaleCheckpoint(LakeError):
    """A query came with a batch older than the last one that the table has of it.

    Spark repeats at most the last batch, so its checkpoint is an older copy, or another driver went on with the query.
    To pass over such a batch would lose records, because it need not hold the same ones as the batch of that number
    that is in the table.
    """
