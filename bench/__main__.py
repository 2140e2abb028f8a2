"""`python -m bench`: the benchmarks of `make bench`."""

from __future__ import annotations

import sys

from bench import cases, command_line


def main() -> None:
    parser = command_line.parser("Penstock beside Apache Kafka and librdkafka's mock cluster.", pairs=5)
    parser.add_argument(
        "--cases",
        default="*",
        metavar="NAMES",
        help="names or patterns, with commas between: 'produce-*,latency' (default: all)",
    )
    parser.add_argument("--list", action="store_true", help="name the cases and end")
    given = parser.parse_args()
    if given.list:
        for case in cases.all_cases():
            print(f"{case.name:24} {case.title}")
        return
    try:
        chosen = cases.matching([pattern.strip() for pattern in given.cases.split(",")])
    except LookupError as reason:
        parser.error(str(reason))
    try:
        command_line.run(chosen, given)
    except KeyboardInterrupt:
        sys.exit("interrupted; everything that was started is stopped")


if __name__ == "__main__":
    main()
