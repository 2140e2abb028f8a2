"""`penstock chaos` with producers of Apache Kafka's Java client, to compare them with librdkafka's.

    python tests/processes/java_chaos.py --brokers 3 --netns --rounds 4 --seed 5 --json

takes the options of `penstock chaos`. It only finds Java and Kafka's jars, and says them to `--producer-command`.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))

from support import java  # noqa: E402

SOURCE = TESTS / "support" / "java_sources" / "NumberedProducer.java"
HEAP = "192M"


def main() -> None:
    from penstock.__main__ import main as penstock

    if reason := java.unavailable():
        sys.exit(f"there is no Java client here: {reason}")
    command = shlex.join(java.command(SOURCE, heap=HEAP))
    sys.argv = ["penstock", "chaos", "--producer-command", command, *sys.argv[1:]]
    sys.exit(penstock())


if __name__ == "__main__":
    main()
