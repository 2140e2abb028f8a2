"""Refuses a commit whose subject is longer than 72 characters: `pre-commit` calls it with the file of the message."""

from __future__ import annotations

import sys
from pathlib import Path

SUBJECT_LENGTH_MAX = 72


def main(message: Path) -> int:
    subject = message.read_text(encoding="utf-8").split("\n", 1)[0]
    if len(subject) <= SUBJECT_LENGTH_MAX:
        return 0
    print(f"the subject has {len(subject)} characters, more than {SUBJECT_LENGTH_MAX}: {subject}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
