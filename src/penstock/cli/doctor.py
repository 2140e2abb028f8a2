"""`penstock doctor`: will Spark run here, and will it find Penstock?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock import kernel
from penstock.cli import exit_codes
from penstock.cli.connection import Cluster
from penstock.cli.errors import CliError
from penstock.cli.options import CLUSTER_PANEL, DEFAULT_TIMEOUT_S, CommandConfig, Json, Timeout, examples
from penstock.cli.output import note, plural, print_json, print_table

if TYPE_CHECKING:
    from penstock.spark.doctor import Check

EXAMPLES = examples(
    ("penstock doctor", "Python, Java, packages, Spark's workers, disk"),
    ("penstock doctor --bootstrap-server localhost:9092", "and whether the cluster answers"),
    ("penstock doctor --session", "and a real Spark session, which takes some seconds"),
    ("penstock doctor --json", "for a script; exit code 10 if anything failed"),
)


def doctor(
    session: Annotated[
        bool, typer.Option("--session", help="Also start a Spark session and load the data source in it.")
    ] = False,
    json: Json = False,
    bootstrap_server: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-server",
            "-b",
            metavar="HOST:PORT",
            rich_help_panel=CLUSTER_PANEL,
            help="Ask this cluster as well; several addresses are separated by commas.",
        ),
    ] = None,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Check that Spark pipelines can run here: Python, Java, Spark and its workers, the cluster, the disk."""
    from penstock.spark.doctor import Status, check_session, checkup

    checks = [*checkup(), check_kernels(kernel.FORM)]
    if bootstrap_server is not None:
        checks.append(check_cluster(Cluster(bootstrap_server, command_config, timeout)))
    if session:
        checks.append(check_session())
    failed = [check for check in checks if check.status is Status.FAILED]
    warnings = sum(check.status is Status.WARNING for check in checks)
    if json:
        print_json({"ok": not failed, "checks": [check._asdict() for check in checks]})
    else:
        rows = [(one.name, one.status.value, one.found, one.fix) for one in checks]
        print_table("", ("check", "status", "found", "fix"), rows)
    if failed:
        raise CliError(f"{plural(len(failed), 'check')} failed", exit_codes.UNHEALTHY, failed[0].fix)
    if not json:
        note("Spark can run here" + (f", with {plural(warnings, 'warning')}." if warnings else "."))


def check_kernels(form: str) -> Check:
    """Whether a broker of this installation checks records at full speed."""
    from penstock.spark.doctor import Check, Status

    if form == "compiled":
        return Check("kernels", Status.OK, form)
    found = f"{form}: a broker spends one to two microseconds on checking each record"
    return Check("kernels", Status.WARNING, found, "install a C compiler, then install Penstock again")


def check_cluster(cluster: Cluster) -> Check:
    """Whether a cluster answers, with the command line's own diagnosis where it does not."""
    from penstock.spark.doctor import Check, Status

    try:
        brokers = cluster.broker_ids()
    except CliError as error:
        found = "; ".join(line.strip() for line in error.message.splitlines())
        return Check("cluster", Status.FAILED, found, error.hint)
    return Check("cluster", Status.OK, f"{plural(len(brokers), 'broker')} at {cluster.bootstrap_server}")
