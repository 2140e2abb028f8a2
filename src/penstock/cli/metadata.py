"""`penstock metadata`: the metadata of a broker that is stopped."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import exit_codes
from penstock.cli.asking import confirm
from penstock.cli.commands import Commands
from penstock.cli.errors import CliError
from penstock.cli.options import Json, examples
from penstock.cli.output import Cell, note, plural, print_json, print_line, print_table, size_of
from penstock.config import parse_properties

if TYPE_CHECKING:
    from penstock.broker.quorum.metadata_recovery import RecoveryPlan
    from penstock.runtime.production import ProductionRuntime

app = Commands(help="Rebuild the metadata of a stopped node.")

VOTERS = "controller.quorum.voters"
SERVERS = "controller.quorum.bootstrap.servers"


@app.callback()
def _group() -> None:
    """Keeps `recover` a command of its own."""


@app.command(
    epilog=examples(
        ("penstock metadata recover --data data", "show what would be done; changes nothing"),
        ("penstock metadata recover --data data --execute", "do it, after a question"),
    )
)
def recover(
    data: Annotated[Path, typer.Option("--data", metavar="DIR", show_default=False, help="The node's data directory.")],
    execute: Annotated[
        bool, typer.Option("--execute", help="Write the new metadata. Without this option nothing is changed.")
    ] = False,
    undelete: Annotated[
        list[str] | None,
        typer.Option(metavar="TOPIC", show_default=False, help="Bring a topic back that was deleted; repeatable."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The node's server.properties: checked for other voters."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: Json = False,
) -> None:
    """Rebuild the metadata from intact records, partition.metadata files and the logs.

    For a node that refuses to start because its metadata is damaged or older than its data, and that is the only voter.
    The node must be stopped. Records are not touched, and the old metadata is kept as a stray.
    """
    from penstock.runtime import DirectoryInUse
    from penstock.runtime.production import run

    if not data.is_dir():
        raise CliError(f"there is no directory {data}", exit_codes.NOT_FOUND)
    if config is not None:
        _check_config(config)

    async def main(runtime: ProductionRuntime) -> None:
        lock = runtime.disk.lock("")
        try:
            await _recover(runtime, data, tuple(undelete or ()), execute=execute, yes=yes, json=json)
        finally:
            lock.release()

    try:
        run(main, root=str(data))
    except DirectoryInUse:
        raise CliError(f"a broker is using {data}", exit_codes.REFUSED, "stop it first") from None
    except OSError as error:
        raise CliError(f"cannot use {error.filename or data}: {error.strerror}") from None


async def _recover(
    runtime: ProductionRuntime, data: Path, undelete: tuple[str, ...], *, execute: bool, yes: bool, json: bool
) -> None:
    from penstock.broker.quorum.metadata_evidence import UnreadableMetadata
    from penstock.broker.quorum.metadata_recovery import RecoveryRefused, carry_out, finish, plan
    from penstock.log import CheckpointDamaged
    from penstock.metadata import MetaPropertiesError

    if await finish(runtime):
        print_line("an earlier recovery was interrupted before its last step; it is done now")
        return
    try:
        recovery = plan(runtime.disk, runtime.uuid, undelete)
    except (RecoveryRefused, MetaPropertiesError, UnreadableMetadata) as error:
        raise CliError(f"{data}: {error}", exit_codes.REFUSED) from None
    if json:
        print_json(_as_json(recovery))
    else:
        _show(recovery)
    if not recovery.is_needed:
        note("the metadata is intact: nothing to recover")
        return
    if not execute:
        note(f"nothing was changed; to do this: penstock metadata recover --data {data} --execute")
        return
    if not yes:
        confirm("Recover the metadata like this?")
    try:
        kept = await carry_out(runtime, recovery)
    except CheckpointDamaged as error:
        raise CliError(str(error), exit_codes.REFUSED) from None
    note("recovered; start the broker" + (f". The old metadata is kept in {data / kept}" if kept else ""))


def _check_config(config: Path) -> None:
    """Refuse if rebuilt metadata could contradict other nodes' metadata."""
    try:
        properties = parse_properties(config.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CliError(f"cannot read {config}: {error}", exit_codes.NOT_FOUND) from None
    for name in (VOTERS, SERVERS):
        if "," in properties.get(name, ""):
            raise CliError(
                f"{config} names other controllers ({name}), which have the metadata",
                exit_codes.REFUSED,
                "start this node while a majority of them is up: it fetches the metadata again",
            )


def _show(recovery: RecoveryPlan) -> None:
    from penstock.wire.uuids import format_uuid

    print_line(f"cluster {recovery.identity.cluster_id}, node {recovery.identity.node_id}")
    for damage in recovery.damage:
        print_line(f"damage: {damage}")
    print_line(f"intact records: {recovery.kept_records}; records that fit nothing any more: {recovery.lost_records}")
    rows: list[list[Cell]] = [
        [
            plan.topic.name, format_uuid(plan.topic.topic_id), len(plan.topic.partitions),
            sum(one.end_offset - one.start_offset for one in plan.facts),
            size_of(sum(one.size_bytes for one in plan.facts)),
            max(state.leader_epoch for state in plan.topic.partitions),
            "kept" if plan.is_known else "LOST: keeps everything",
        ]
        for plan in recovery.topics
    ]  # fmt: skip
    if rows:
        print_table("", ("topic", "id", "partitions", "offsets", "size", "leader epoch", "configuration"), rows)
    print_line(f"next producer id: {recovery.image.next_producer_id}")
    print_line(f"metadata continues at offset {recovery.snapshot_id.offset}, epoch {recovery.snapshot_id.epoch}")
    for plan in recovery.topics:
        for text in plan.notes:
            print_line(f"note: {plan.topic.name}: {text}")
    for directory, topic_id in recovery.owners.items():
        print_line(f"write: {directory}/partition.metadata, topic id {topic_id}")
    for directory, reason in recovery.aside.items():
        print_line(f"set aside: {directory}: {reason}")
    lost = recovery.topics_without_configuration
    if lost:
        print_line(
            f"note: the configuration of {plural(len(lost), 'topic')} is lost ({', '.join(lost)}). Each keeps all "
            "records (cleanup.policy=delete, retention.ms=-1, retention.bytes=-1) until you set its configuration again"
        )
    for text in recovery.notes:
        print_line(f"note: {text}")


def _as_json(recovery: RecoveryPlan) -> dict[str, object]:
    from penstock.wire.uuids import format_uuid

    return {
        "cluster_id": recovery.identity.cluster_id,
        "node_id": recovery.identity.node_id,
        "damage": recovery.damage,
        "topics": [
            {
                "name": plan.topic.name,
                "id": format_uuid(plan.topic.topic_id),
                "configuration_known": plan.is_known,
                "notes": plan.notes,
                "partitions": [
                    {"partition": index, "leader_epoch": state.leader_epoch}
                    for index, state in enumerate(plan.topic.partitions)
                ],
            }
            for plan in recovery.topics
        ],
        "next_producer_id": recovery.image.next_producer_id,
        "offset": recovery.snapshot_id.offset,
        "epoch": recovery.snapshot_id.epoch,
        "partition_metadata_to_write": recovery.owners,
        "to_set_aside": recovery.aside,
        "notes": recovery.notes,
    }
