"""`penstock host`: is this machine fit to run a broker?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli import exit_codes
from penstock.cli.commands import Commands
from penstock.cli.errors import CliError
from penstock.cli.options import Json, examples
from penstock.cli.output import note, plural, print_json, print_line, print_table
from penstock.planning.host import State, fix_script, judge

app = Commands(help="Check a machine that is to run a broker.")

DATA_DEFAULT = Path("data")


@app.command(
    epilog=examples(
        ("penstock host check", "this machine, and ./data"),
        ("penstock host check --data /var/lib/penstock --data /mnt/disk2", "the directories of a broker"),
        ("penstock host check --fix-script > fix.sh", "a script to read, and to run as root"),
        ("penstock host check --json", "for a script; exit code 10 if a check failed"),
    )
)
def check(
    data: Annotated[
        list[Path] | None,
        typer.Option("--data", metavar="DIR", help="A directory for data; repeatable. ./data if not given."),
    ] = None,
    script: Annotated[
        bool, typer.Option("--fix-script", help="Write a shell script with the fixes, and change nothing.")
    ] = False,
    json: Json = False,
) -> None:
    """Check limits, kernel settings, swap, file systems, disks and the clock, each with its fix."""
    if not sys.platform.startswith("linux"):
        raise CliError("this check reads /proc and /sys, which only Linux has", exit_codes.REFUSED)
    from penstock.cli.host_facts import read_facts

    checks = judge(read_facts(data or [DATA_DEFAULT]))
    failed = [one for one in checks if one.state is State.FAILED]
    warnings = [one for one in checks if one.state is State.WARNING]
    if script:
        sys.stdout.write(fix_script(checks))
        return
    if json:
        print_json(
            {
                "ok": not failed,
                "checks": [
                    {
                        "name": one.name,
                        "state": str(one.state),
                        "found": one.found,
                        "wanted": one.wanted,
                        "why": one.why,
                        "fix": one.fix or None,
                        "source": one.source,
                    }
                    for one in checks
                ],
            }
        )
    else:
        print_table(
            "",
            ("check", "state", "found", "wanted"),
            [(one.name, str(one.state), one.found, one.wanted) for one in checks],
        )
        for one in (*failed, *warnings):
            print_line("")
            print_line(f"{one.name}: {one.state}. {one.why}")
            print_line(f"  fix: {one.fix}")
    if failed:
        raise CliError(f"{plural(len(failed), 'check')} failed", exit_codes.UNHEALTHY, failed[0].fix)
    if not json:
        note("fit for a broker" + (f", with {plural(len(warnings), 'warning')}" if warnings else ""))
