"""`penstock demo`: the whole platform at work, in one command."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli import exit_codes
from penstock.cli.asking import confirm
from penstock.cli.errors import CliError
from penstock.cli.options import Json, examples
from penstock.cli.output import note, print_json, print_line

EXAMPLES = examples(
    ("penstock demo", "until Ctrl-C, with a live view"),
    ("penstock demo --seconds 30", "half a minute, then a summary that checks itself"),
    ("penstock demo --no-spark --port 9192", "without Spark, on another port"),
    ("penstock demo --seconds 20 --json", "for a script; exit code 10 if the events do not add up"),
)

DATA_DEFAULT = Path("demo-data")
RATE_DEFAULT = 400.0
SECONDS_MIN = 1.0


def demo(
    seconds: Annotated[
        float | None,
        typer.Option(
            metavar="N",
            min=SECONDS_MIN,
            help="Send events for this long once the pipeline runs, then stop. Without it, run until Ctrl-C.",
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(metavar="P", min=0, max=65535, help="The port of the broker; 0 chooses a free one.")
    ] = 9092,
    data: Annotated[Path, typer.Option(metavar="DIR", help="Keep all data in this directory.")] = DATA_DEFAULT,
    rate: Annotated[
        float, typer.Option(metavar="N", min=1, max=50_000, help="Events per second, as the mean over a week.")
    ] = RATE_DEFAULT,
    seed: Annotated[
        int | None,
        typer.Option(metavar="N", help="Seed of the random events: another seed, other customers and orders."),
    ] = None,
    no_spark: Annotated[
        bool, typer.Option("--no-spark", help="Compute the results with a Python consumer group instead of Spark.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Replace an earlier demo's topics and tables without asking.")
    ] = False,
    json: Json = False,
) -> None:
    """Run a demo: a broker, a web shop's events, and a Spark pipeline, with live figures."""
    from penstock.demo import runner, summary
    from penstock.demo.choice import choose_pipeline
    from penstock.demo.directory import Leftovers
    from penstock.demo.generator import SEED_DEFAULT
    from penstock.demo.screens import LineScreen, LiveScreen, Screen

    live = sys.stdout.isatty() and not json
    out = sys.stderr if json else sys.stdout
    chosen = choose_pipeline(data, no_spark=no_spark)
    if chosen.notice:
        note(chosen.notice)

    def announce(address: str) -> None:
        where = "" if address.endswith(":9092") else f" -b {address}"
        print(
            f"penstock: ready on {address}, where any Kafka client can use it. In another terminal:\n"
            f"  penstock topics list{where}\n"
            f"  penstock consume shop.revenue --from-beginning{where}\n"
            f"Data is kept in {data}/. Ctrl-C ends the demo.",
            file=out,
            flush=True,
        )

    def confirm_replacing(leftovers: Leftovers) -> None:
        if not yes:
            confirm(f"{data} holds an earlier demo: {leftovers}. Everything else there stays. Replace them?")

    def make_screen() -> Screen:
        return LiveScreen() if live else LineScreen(out)

    options = runner.Options(
        data=data, port=port, seconds=seconds, rate=rate, seed=SEED_DEFAULT if seed is None else seed
    )
    try:
        done = runner.run(
            options,
            chosen.pipeline,
            make_screen=make_screen,
            announce=announce,
            confirm=confirm_replacing,
            notice=chosen.notice,
        )
    except runner.DemoFailed as error:
        raise CliError(str(error), exit_codes.FAILED, error.hint) from None
    if json:
        print_json(done.as_json())
    else:
        for line in ["", *summary.lines(done), "", *summary.next_steps(done, has_tables=chosen.has_tables)]:
            print_line(line)
    if not done.adds_up:
        raise typer.Exit(exit_codes.UNHEALTHY)
