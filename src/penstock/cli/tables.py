"""`penstock tables`: Delta tables in a lake, without Spark."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from penstock import install_command
from penstock.cli import exit_codes
from penstock.cli.asking import confirm
from penstock.cli.commands import Commands
from penstock.cli.connection import parse_settings
from penstock.cli.errors import CliError
from penstock.cli.options import Json, examples
from penstock.cli.output import Cell, note, plural, print_json, print_line, print_table, size_of

if TYPE_CHECKING:
    from penstock.pipeline.lake import Rows, TableDescription

app = Commands(help="Inspect and maintain Delta tables. Needs neither a broker nor Spark.")

HISTORY_LIMIT = 20
RETENTION_HOURS = 168
TARGET_MB = 128
ROWS_LIMIT = 20
VACUUM_SHOWN_MAX = 20

TablePath = Annotated[
    str,
    typer.Argument(metavar="PATH", show_default=False, help="A table's directory, or its URL in an object store."),
]
StorageOption = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option", metavar="KEY=VALUE", help="For object stores, such as aws_region=eu-central-1. Repeatable."
    ),
]
Version = Annotated[
    int | None, typer.Option("--version", "-v", min=0, help="The version to read; the newest if not given.")
]


Columns = Annotated[
    str | None, typer.Option("--columns", "-c", metavar="LIST", help="Only these, separated by commas.")
]
Where = Annotated[str | None, typer.Option("--where", metavar="SQL", help="Only rows that match this condition.")]
Limit = Annotated[
    int, typer.Option("--limit", "-n", min=1, max=1_000_000, metavar="N", help="Show at most this many rows.")
]


@app.command("list", epilog=examples(("penstock tables list lake", "all tables in a directory and below it")))
def list_tables(
    directory: Annotated[
        str, typer.Argument(metavar="DIR", show_default=False, help="A directory that holds tables.")
    ] = ".",
    json: Json = False,
) -> None:
    """Find tables, with their sizes."""
    from penstock.pipeline.lake import describe_table, find_tables

    with _lake():
        found = [describe_table(path) for path in find_tables(directory)]
    if json:
        print_json([_as_json(table) for table in found])
        return
    rows: list[list[Cell]] = [
        [table.path, table.version, table.rows, table.files, size_of(table.size_bytes), table.partitions_to_compact]
        for table in found
    ]
    print_table("", ("table", "version", "rows", "files", "size", "partitions to compact"), rows)
    if not found:
        note(f"there is no Delta table in {directory}")


@app.command(
    epilog=examples(
        ("penstock tables describe lake/orders", "columns, files, rows, what could be compacted"),
        ("penstock tables describe lake/orders --version 12", "as it was then"),
    )
)
def describe(
    path: TablePath, version: Version = None, storage_option: StorageOption = None, json: Json = False
) -> None:
    """Show what a table is."""
    from penstock.pipeline.lake import describe_table

    with _lake():
        table = describe_table(path, version=version, storage_options=_options(storage_option))
    if json:
        print_json(_as_json(table))
        return
    print_line(f"{table.path}  version {table.version}")
    partitions = f" in {plural(table.partitions, 'partition')}" if table.partition_by else ""
    rows = "an unknown number of rows" if table.rows is None else plural(table.rows, "row")
    print_line(f"{rows} in {plural(table.files, 'file')}{partitions}, {size_of(table.size_bytes)}")
    if table.smallest_bytes is not None and table.largest_bytes is not None:
        print_line(f"files from {size_of(table.smallest_bytes)} to {size_of(table.largest_bytes)}")
    features = f", features {', '.join(table.features)}" if table.features else ""
    print_line(f"protocol: reader {table.reader_version}, writer {table.writer_version}{features}")
    for key, value in sorted(table.properties.items()):
        print_line(f"{key} = {value}")
    columns: list[list[Cell]] = [
        [column.name, column.type, column.nullable, "partition" if column.is_partition else ""]
        for column in table.columns
    ]
    print_table("", ("column", "type", "nullable", ""), columns)
    if table.partitions_to_compact:
        where = plural(table.partitions_to_compact, "partition") if table.partition_by else "it"
        note(f"hint: {where} could be compacted: penstock tables compact {path}")


@app.command(
    epilog=examples(
        ("penstock tables history lake/orders", "the last commits, newest first"),
        ("penstock tables history lake/orders --limit 1000 --json", "for scripts"),
    )
)
def history(
    path: TablePath,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many commits.")] = HISTORY_LIMIT,
    storage_option: StorageOption = None,
    json: Json = False,
) -> None:
    """Show the commits of a table: which query and batch each came from."""
    from penstock.pipeline.lake import table_history

    with _lake():
        commits = table_history(path, limit=limit, storage_options=_options(storage_option))
    if json:
        print_json([asdict(commit) for commit in commits])
        return
    rows: list[list[Cell]] = [
        [commit.version, _time(commit.timestamp_ms), commit.operation, commit.batch_id, commit.query_id]
        for commit in commits
    ]
    print_table("", ("version", "time", "operation", "batch", "query"), rows)


@app.command(
    epilog=examples(
        ("penstock tables compact lake/orders", "small files together, partition by partition"),
        ("penstock tables compact lake/orders --partition date=2026-01-31", "one day"),
    )
)
def compact(
    path: TablePath,
    target_mb: Annotated[
        int, typer.Option("--target-mb", min=1, help="Merge files into files of up to this size, in megabytes.")
    ] = TARGET_MB,
    partition: Annotated[
        list[str] | None,
        typer.Option(
            "--partition", "-p", metavar="NAME=VALUE", help="Only partitions with this value of a column. Repeatable."
        ),
    ] = None,
    storage_option: StorageOption = None,
    json: Json = False,
) -> None:
    """Merge small files. Safe while streams write to the table."""
    from penstock.pipeline.lake import compact_table

    with _lake(), _progress("compacting") as progress:
        done = compact_table(
            path,
            target_size_bytes=target_mb << 20,
            partitions=parse_settings(partition or [], "--partition"),
            storage_options=_options(storage_option),
            on_progress=progress,
        )
    if json:
        print_json(asdict(done))
    elif not done.files_removed:
        print_line("nothing to compact")
    else:
        print_line(
            f"{plural(done.files_removed, 'file')} ({size_of(done.bytes_removed)}) became "
            f"{plural(done.files_added, 'file')} ({size_of(done.bytes_added)}); version {done.version}"
        )
        note(f"hint: the old files stay for readers of older versions, until penstock tables vacuum {path}")


@app.command(
    epilog=examples(
        ("penstock tables vacuum lake/orders --dry-run", "what would be deleted"),
        ("penstock tables vacuum lake/orders --yes", "without a question"),
    )
)
def vacuum(
    path: TablePath,
    retention_hours: Annotated[
        int, typer.Option("--retention-hours", min=0, help="Keep what versions of this time need, and younger files.")
    ] = RETENTION_HOURS,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the files.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Allow less than a week. Only while nothing reads or writes the table!")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    storage_option: StorageOption = None,
    json: Json = False,
) -> None:
    """Delete files that no version needs any more, and what failed batches left behind.

    Older versions than the retention time can then no longer be read.
    """
    from penstock.pipeline.lake import vacuum_table

    def run(dry: bool) -> tuple[list[str], int | None]:
        with _lake(), _progress("looking" if dry else "deleting"):
            done = vacuum_table(
                path,
                retention_hours=retention_hours,
                dry_run=dry,
                allow_short_retention=force,
                storage_options=_options(storage_option),
            )
        return list(done.files), done.size_bytes

    files, size_bytes = run(True)
    if files and not dry_run:
        if not yes:
            confirm(f"Delete {plural(len(files), 'file')} of {path}?")
        files, size_bytes = run(False)
    if json:
        print_json({"files": files, "size_bytes": size_bytes, "dry_run": dry_run})
        return
    if not files:
        print_line("nothing to delete")
        return
    size = "" if size_bytes is None else f" ({size_of(size_bytes)})"
    print_line(f"{'would delete' if dry_run else 'deleted'} {plural(len(files), 'file')}{size}")
    shown = files if dry_run else files[:VACUUM_SHOWN_MAX]
    for file in shown:
        print_line(f"  {file}")
    if len(shown) < len(files):
        print_line(f"  … and {len(files) - len(shown):,} more")


@app.command(
    epilog=examples(
        ("penstock tables show lake/revenue", "the first rows"),
        ("penstock tables show lake/orders --where \"product = 'book'\" --columns order_id,amount", "some of them"),
        ("penstock tables show lake/orders --limit 1000 --json", "for a script: one object per line"),
    )
)
def show(
    path: TablePath,
    limit: Limit = ROWS_LIMIT,
    version: Version = None,
    columns: Columns = None,
    where: Where = None,
    storage_option: StorageOption = None,
    json: Json = False,
) -> None:
    """Show rows of a table."""
    from penstock.pipeline.lake import read_rows

    with _lake():
        rows = read_rows(
            path,
            limit=limit,
            version=version,
            columns=_listed(columns),
            predicate=where,
            storage_options=_options(storage_option),
        )
    _print_rows(rows, json=json)


@app.command(
    epilog=examples(
        ("penstock tables query lake 'SELECT product, sum(amount) FROM revenue GROUP BY product'", "one table"),
        ("penstock tables query lake 'SELECT * FROM orders JOIN products USING (product)'", "two of them"),
    )
)
def query(
    directory: Annotated[
        str, typer.Argument(metavar="DIR", show_default=False, help="A directory that holds the tables.")
    ],
    sql: Annotated[
        str, typer.Argument(metavar="SQL", show_default=False, help="A SELECT; a table's name is its directory's.")
    ],
    limit: Limit = ROWS_LIMIT,
    json: Json = False,
) -> None:
    """Query tables in SQL (DataFusion's dialect; Spark is not needed)."""
    from penstock.pipeline.lake import query_tables

    with _lake():
        rows = query_tables(directory, sql, limit=limit)
    _print_rows(rows, json=json)


@app.command(
    epilog=examples(
        ("penstock tables export lake/orders orders-parquet", "all rows as plain Parquet"),
        ("penstock tables export lake/orders day --where \"date = '2026-01-31'\" --columns id,amount", "some of them"),
    )
)
def export(
    path: TablePath,
    destination: Annotated[
        str, typer.Argument(metavar="DIR", show_default=False, help="A directory that does not exist yet.")
    ],
    version: Version = None,
    columns: Columns = None,
    where: Where = None,
    compression: Annotated[
        str, typer.Option("--compression", help="zstd, snappy, gzip, lz4, brotli or none.")
    ] = "zstd",
    storage_option: StorageOption = None,
    json: Json = False,
) -> None:
    """Export a table as plain Parquet files, for tools that cannot read Delta."""
    from penstock.pipeline.lake import export_parquet

    with _lake(), _progress("exporting rows") as progress:
        done = export_parquet(
            path,
            destination,
            version=version,
            columns=_listed(columns),
            predicate=where,
            compression=compression,
            storage_options=_options(storage_option),
            on_rows=lambda rows, total: progress(rows, total or 0, ""),
        )
    if json:
        print_json(asdict(done))
    else:
        print_line(
            f"{plural(done.rows, 'row')} of version {done.version} in {plural(done.files, 'file')} "
            f"({size_of(done.size_bytes)}) in {done.destination}"
        )


@contextmanager
def _lake() -> Iterator[None]:
    """Errors of tables as errors of commands."""
    from penstock.pipeline.lake import LakeError
    from penstock.pipeline.lake.errors import TableMissing

    try:
        yield
    except TableMissing as error:
        raise CliError(error.message, exit_codes.NOT_FOUND, error.fix) from None
    except LakeError as error:
        raise CliError(error.message, exit_codes.FAILED, error.fix) from None
    except ModuleNotFoundError as error:
        raise CliError(f"tables need the package {error.name}", exit_codes.FAILED, install_command("spark")) from None


@contextmanager
def _progress(doing: str) -> Iterator[Callable[[int, int, str], None]]:
    """A bar on a terminal, and nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda done, total, label: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task(doing, total=None)

        def show(done: int, total: int, label: str) -> None:
            bar.update(task, completed=done, total=total or None, description=f"{doing} {label}".strip())

        yield show


def _print_rows(rows: Rows, *, json: bool) -> None:
    if json:
        for row in rows.rows:
            print_json(dict(zip(rows.columns, row, strict=True)), lines=True)
    else:
        print_table("", rows.columns, [[_cell(value) for value in row] for row in rows.rows])
    if rows.has_more:
        note(f"these are the first {plural(len(rows.rows), 'row')}: --limit N shows more")


def _cell(value: object) -> Cell:
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _listed(names: str | None) -> list[str] | None:
    return [name.strip() for name in names.split(",") if name.strip()] if names is not None else None


def _options(settings: list[str] | None) -> dict[str, str]:
    return parse_settings(settings or [], "--storage-option")


def _as_json(table: TableDescription) -> dict[str, object]:
    return asdict(table)


def _time(timestamp_ms: int | None) -> str | None:
    if timestamp_ms is None:
        return None
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
