"""The `penstock` command: hands over to whoever does the work.

`penstock server` and `penstock up` are a broker's process. They import nothing that a broker does not need: the
packages behind the other commands (typer, rich, confluent-kafka) would cost some 30 MB and half a second.
"""

from __future__ import annotations

import sys


def main(arguments: list[str] | None = None) -> int:
    """Runs the command and returns its exit code; see `penstock.cli.exit_codes`."""
    if arguments is None:
        arguments = sys.argv[1:]
    command = arguments[0] if arguments else ""
    if command == "server":
        from penstock.cli import server

        return server.main(arguments[1:])
    if command == "up":
        from penstock.cli import up

        return up.main(arguments[1:])
    from penstock.cli import app

    return app.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
