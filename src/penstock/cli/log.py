"""`penstock log`: the files of a broker, without a broker."""

from __future__ import annotations

import json as json_text
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import typer

from penstock.cli import exit_codes
from penstock.cli.asking import confirm
from penstock.cli.commands import Commands
from penstock.cli.errors import CliError
from penstock.cli.formats import json_of_bytes
from penstock.cli.node_directories import nodes_in
from penstock.cli.offline import OfflineDisk, is_in_use
from penstock.cli.options import Json, examples
from penstock.cli.output import Cell, note, plural, print_json, print_line, print_table, size_of

if TYPE_CHECKING:
    from penstock.log.tools import BatchDump, Problem, RecordDump, Verdict
    from penstock.runtime import Disk
    from penstock.runtime.production import ProductionRuntime

T = TypeVar("T")

app = Commands(help="Inspect the files of a broker. No broker needs to run; only `restore` and `accept-loss` write.")

SEGMENT_PATTERN = "[0-9]" * 20 + ".log"
SUGGESTED_MAX = 5
NOT_SERVED_SUFFIXES = ("-stray", "-delete")
"""Of directories that no broker reads: they are looked at only if they are named."""

Directory = Annotated[
    Path,
    typer.Argument(metavar="DIR", show_default=False, help="A partition's directory, such as data/orders-0."),
]
DataDirectory = Annotated[
    Path,
    typer.Argument(metavar="DIR", show_default=False, help="A data directory, or one partition in it."),
]

Root = Annotated[
    Path,
    typer.Argument(metavar="DIR", show_default=False, help="The data directory of a broker or of a local cluster."),
]


@app.command(
    epilog=examples(
        ("penstock log dump data/orders-0", "every batch, a line each"),
        ("penstock log dump data/orders-0 --records --from-offset 100 --until-offset 110", "ten records"),
        ("penstock log dump data/orders-0 --indexes --producers", "the other files, too"),
        ("penstock log dump data/orders-0 --records --json", "one JSON object per line"),
    )
)
def dump(
    directory: Directory,
    records: Annotated[bool, typer.Option("--records", "-r", help="Open the batches and show their records.")] = False,
    from_offset: Annotated[int, typer.Option(min=0, help="Begin with the batch that holds this offset.")] = 0,
    until_offset: Annotated[int | None, typer.Option(min=0, help="Stop before this offset.")] = None,
    indexes: Annotated[bool, typer.Option("--indexes", "-i", help="Also show the entries of the indexes.")] = False,
    producers: Annotated[bool, typer.Option("--producers", help="Also show the producers in the snapshots.")] = False,
    json: Json = False,
) -> None:
    """Show the contents of a partition's files."""
    from penstock.log import tools

    _require_partition(directory)
    problems = 0
    with _disk(directory.parent) as disk:
        for found in tools.dump(
            disk, directory.name, records=records, from_offset=from_offset, upto_offset=until_offset
        ):
            problems += isinstance(found, tools.Problem)
            if json:
                print_line(json_text.dumps({"kind": _kind(found), **_fields(found)}, ensure_ascii=False))
            elif isinstance(found, tools.Problem):
                print_line(_problem_line(found))
            else:
                _print_batch(found)
        for other in _other_files(disk, directory.name, indexes=indexes, producers=producers):
            print_line(
                json_text.dumps(other) if json else "  ".join(f"{name}={value}" for name, value in other.items())
            )
    if problems:
        raise CliError(f"{directory} has {plural(problems, 'place')} that cannot be understood")


@app.command(
    epilog=examples(
        ("penstock log verify data", "all partitions of a data directory"),
        ("penstock log verify data/orders-0 --records", "one of them, every record opened"),
    )
)
def verify(
    directory: DataDirectory,
    records: Annotated[
        bool, typer.Option("--records", "-r", help="Also open every batch and check its records.")
    ] = False,
    json: Json = False,
) -> None:
    """Verify files: checksums, offsets, epochs, indexes, snapshots.

    A note is something that the broker repairs at its next start. An error means damaged or missing records: the
    command then ends with code 1.
    """
    from penstock.log import tools

    root, names = _partitions(directory)
    problems: list[Problem] = []
    verdicts: list[Verdict] = []
    with _disk(root) as disk:
        for name in names:
            for found in tools.verify(disk, name, records=records):
                if isinstance(found, tools.Verdict):
                    verdicts.append(found)
                else:
                    problems.append(found)
                    if not json:
                        print_line(_problem_line(found))
    if json:
        print_json(
            {"logs": [tools.as_json(one) for one in verdicts], "problems": [tools.as_json(one) for one in problems]}
        )
    else:
        _print_verdicts(verdicts)
    broken = [verdict.directory for verdict in verdicts if not verdict.is_sound]
    if broken:
        raise CliError(
            f"{plural(len(broken), 'partition')} damaged: {', '.join(broken)}",
            exit_codes.FAILED,
            "restore the directory from a replica or a backup; notes need no action",
        )


@app.command(
    epilog=examples(
        ("penstock log strays data", "files that were set aside, when and why"),
        ("penstock log restore data orders-0.1f0c…-stray", "give one its name back"),
    )
)
def strays(directory: Root, json: Json = False) -> None:
    """List strays: data that brokers set aside because the metadata does not know it, or because it was damaged.

    Strays are removed after penstock.stray.retention.ms. The data directory of a local cluster is searched node by
    node.
    """
    from penstock.log import strays_in

    _require_directory(directory)
    found = []
    for root in nodes_in(directory).values() or [directory]:
        with _disk(root) as disk:
            for stray in strays_in(disk):
                path = root / stray.directory
                found.append((str(path.relative_to(directory)), stray, _size_below(path)))
    if json:
        print_json(
            [
                {
                    "directory": path,
                    "name": stray.name,
                    "size_bytes": size,
                    "set_aside_ms": None if stray.note is None else stray.note.set_aside_ms,
                    "reason": None if stray.note is None else stray.note.reason,
                }
                for path, stray, size in found
            ]
        )
        return
    rows: list[list[Cell]] = [
        [
            path, stray.name, size_of(size),
            "" if stray.note is None else _moment(stray.note.set_aside_ms),
            "" if stray.note is None else stray.note.reason,
        ]
        for path, stray, size in found
    ]  # fmt: skip
    print_table("", ("stray", "was", "size", "set aside", "because"), rows)


@app.command(
    epilog=examples(("penstock log restore data orders-0.1f0c…-stray", "as `penstock log strays data` shows it"))
)
def restore(
    directory: Root,
    stray: Annotated[str, typer.Argument(metavar="STRAY", show_default=False, help="A name that `log strays` lists.")],
    json: Json = False,
) -> None:
    """Restore a stray: give the directory its old name again. The broker must be stopped.

    If the metadata knows the topic under the same id, the next start serves it. Otherwise a node alone refuses to start
    then, and `penstock metadata recover` makes the topic known; in a cluster it would be set aside again.
    """
    from penstock.log import StrayError, Strays

    node, _, name = stray.rpartition("/")
    # Only the directory of a node may stand before the name: no path leads out of the data directory.
    if node not in [path.name for path in nodes_in(directory).values()]:
        node, name = "", stray
    try:
        restored = _run_locked(directory / node, lambda runtime: Strays(runtime).restore(name))
    except StrayError as error:
        raise CliError(str(error), exit_codes.REFUSED, f"penstock log strays {directory} lists them") from None
    if json:
        print_json({"stray": stray, "restored": str(Path(node) / restored)})
    else:
        print_line(str(Path(node) / restored))


@app.command(
    "accept-loss",
    epilog=examples(("penstock log accept-loss data orders-0", "serve the rest of a damaged partition")),
)
def accept_loss(
    directory: Root,
    partition: Annotated[str, typer.Argument(metavar="PARTITION", show_default=False, help="Such as orders-0.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: Json = False,
) -> None:
    """Give up the lost part of a partition that a broker refuses to serve. The broker must be stopped.

    For a partition whose directory is gone, or whose log is damaged where it was synced, and that no other replica has.
    The next start serves the remaining records, possibly none. No file of the partition is touched.
    """
    from penstock.log import CheckpointDamaged, accepting

    if not yes:
        confirm(f"Serve the remaining records of {partition}, and give up the lost ones?")
    try:
        known = _run_locked(directory, lambda runtime: accepting.accept_loss(runtime.disk, partition))
    except CheckpointDamaged as error:
        raise CliError(str(error), exit_codes.REFUSED) from None
    if known is None:
        raise CliError(f"no checkpoint of {directory} knows {partition}", exit_codes.NOT_FOUND)
    if json:
        print_json({"partition": partition, "known_end": known})
        return
    note(f"{partition} was known to reach offset {known}; start the broker to serve the remaining records")


def _run_locked(directory: Path, work: Callable[[ProductionRuntime], Coroutine[Any, Any, T]]) -> T:
    """Do something with a data directory that no broker uses meanwhile."""
    from penstock.runtime import DirectoryInUse
    from penstock.runtime.production import run

    _require_directory(directory)

    async def main(runtime: ProductionRuntime) -> T:
        lock = runtime.disk.lock("")
        try:
            return await work(runtime)
        finally:
            lock.release()

    try:
        return run(main, root=str(directory))
    except DirectoryInUse:
        raise CliError(f"a broker is using {directory}", exit_codes.REFUSED, "stop it first") from None


def _size_below(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())


def _moment(wall_ms: int) -> str:
    return datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(timespec="seconds")


def _require_directory(directory: Path) -> None:
    if not directory.is_dir():
        raise CliError(f"there is no directory {directory}", exit_codes.NOT_FOUND)


def _print_batch(batch: BatchDump) -> None:
    flags = [
        name for name, is_set in (("transactional", batch.is_transactional), ("control", batch.is_control)) if is_set
    ]
    producer = (
        f"  producer {batch.producer_id}/{batch.producer_epoch}/{batch.base_sequence}" if batch.producer_id >= 0 else ""
    )
    print_line(
        f"{batch.base_offset}..{batch.last_offset}  {plural(batch.count, 'record')}  {batch.size_bytes} bytes at "
        f"{Path(batch.file).name}:{batch.position}  epoch {batch.leader_epoch}  {batch.codec}  "
        f"{batch.timestamp_type} {batch.max_timestamp}{producer}{''.join('  ' + flag for flag in flags)}"
        f"{'' if batch.delete_horizon_ms is None else f'  tombstones until {batch.delete_horizon_ms}'}"
        f"{'' if batch.is_valid else '  BAD CHECKSUM'}"
    )
    for record in batch.records or ():
        print_line("  " + _record_line(record))


def _record_line(record: RecordDump) -> str:
    parts = [f"{record.offset}", f"{record.timestamp}"]
    if record.control_type is not None:
        parts.append(record.control_type)
    parts += [f"key={_shown(record.key)}", f"value={_shown(record.value)}"]
    parts += [f"{name}={_shown(value)}" for name, value in record.headers]
    return "  ".join(parts)


def _shown(data: bytes | None) -> str:
    return json_text.dumps(json_of_bytes(data), ensure_ascii=False)


def _problem_line(problem: Problem) -> str:
    where = f"{problem.file}:{problem.position}"
    offset = f" (offset {problem.offset})" if problem.offset >= 0 else ""
    return f"{problem.severity.value.upper()}  {where}{offset}: {problem.text}"


def _print_verdicts(verdicts: list[Verdict]) -> None:
    rows: list[list[Cell]] = [
        [
            v.directory, "sound" if v.is_sound else "DAMAGED", v.segments, v.batches, v.records, size_of(v.size_bytes),
            v.start_offset, v.end_offset, v.notes, v.errors,
        ]
        for v in verdicts
    ]  # fmt: skip
    head = ("log", "verdict", "segments", "batches", "records", "size", "first", "end", "notes", "errors")
    print_table("", head, rows)


def _other_files(disk: Disk, name: str, *, indexes: bool, producers: bool) -> Iterator[dict[str, object]]:
    from penstock.log import names, tools

    for base in tools.segment_bases(disk, name) if indexes else []:
        if disk.exists(names.path_of(name, base, names.OFFSET_INDEX_SUFFIX)):
            for entry in tools.dump_index(disk, name, base):
                yield {"kind": "offset index", **_fields(entry)}
        if disk.exists(names.path_of(name, base, names.TIME_INDEX_SUFFIX)):
            for time_entry in tools.dump_time_index(disk, name, base):
                yield {"kind": "time index", **_fields(time_entry)}
        if disk.exists(names.path_of(name, base, names.ABORTED_INDEX_SUFFIX)):
            for aborted in tools.dump_aborted(disk, name, base):
                yield {"kind": "aborted transaction", **_fields(aborted)}
    for file in disk.list(name) if producers else []:
        offset = names.offset_in(file, names.SNAPSHOT_SUFFIX)
        if offset is not None:
            for producer in tools.dump_snapshot(disk, name, offset):
                yield {"kind": "producer", **_fields(producer)}


def _fields(value: object) -> dict[str, object]:
    from penstock.log.tools import as_json

    fields = as_json(value)
    assert isinstance(fields, dict)
    return fields


def _kind(found: BatchDump | Problem) -> str:
    return "problem" if hasattr(found, "severity") else "batch"


def _require_partition(directory: Path) -> None:
    if not directory.is_dir():
        raise CliError(f"there is no directory {directory}", exit_codes.NOT_FOUND)
    if _is_partition(directory):
        return
    below = _partitions_below(directory)
    if below:
        some = ", ".join(str(path) for path in below[:SUGGESTED_MAX]) + (", …" if len(below) > SUGGESTED_MAX else "")
        raise CliError(f"{directory} is a data directory", exit_codes.USAGE, f"name one partition in it: {some}")
    raise CliError(f"there are no segments in {directory}", exit_codes.NOT_FOUND, "name the directory of a partition")


def _partitions(directory: Path) -> tuple[Path, list[str]]:
    """The data directory, and the names of the partitions in it that were asked for."""
    if not directory.is_dir():
        raise CliError(f"there is no directory {directory}", exit_codes.NOT_FOUND)
    if _is_partition(directory):
        return directory.resolve().parent, [directory.resolve().name]
    nodes = nodes_in(directory).values() or [directory]
    below = [path for node in nodes for path in _partitions_below(node)]
    if not below:
        raise CliError(
            f"there are no logs in {directory}",
            exit_codes.NOT_FOUND,
            "name a broker's data directory, or a partition in it",
        )
    return directory, [str(path.relative_to(directory)) for path in below]


def _is_partition(directory: Path) -> bool:
    return next(directory.glob(SEGMENT_PATTERN), None) is not None


def _partitions_below(directory: Path) -> list[Path]:
    return sorted(
        path
        for path in directory.iterdir()
        if path.is_dir() and not path.name.endswith(NOT_SERVED_SUFFIXES) and _is_partition(path)
    )


@contextmanager
def _disk(root: Path) -> Iterator[Disk]:
    for used in filter(is_in_use, [root, *nodes_in(root).values()]):
        note(f"note: a broker is using {used}; records that it is writing may look incomplete")
    try:
        yield cast("Disk", OfflineDisk(root))
    except OSError as error:
        raise CliError(f"cannot read {error.filename or root}: {error.strerror}") from None
