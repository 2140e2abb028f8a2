"""The `penstock` command: dispatches to the subcommand.

`penstock server` and `penstock up` run a broker. They import only what a broker needs: the packages behind the other
commands (typer, rich, confluent-kafka) would cost some 30 MB and half a second.
"""

from __future__ import annotations

import sys


def main(arguments: list[str] | None = None) -> int:
    """Runs the command and returns its exit code; see `penstock.cli.exit_codes`."""
    if arguments is None:
        arguments = sys.argv[1:]
    command = arguments[0] if arguments else ""
    if command in ("server", "up"):
        from penstock.cli.server_options import ServerOptions, UpOptions, parse

        if command == "server" and (for_server := parse(ServerOptions, arguments[1:])) is not None:
            from penstock.cli.server import serve

            return serve(for_server)
        if command == "up" and (for_up := parse(UpOptions, arguments[1:])) is not None:
            from penstock.cli.server import up

            return up(for_up)
    from penstock.cli import app

    return app.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
