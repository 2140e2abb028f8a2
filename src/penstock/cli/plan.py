"""`penstock plan`: what a load needs, what it costs and what limits it, by the rules of `penstock.planning`."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli import exit_codes
from penstock.cli.commands import Commands
from penstock.cli.errors import CliError
from penstock.cli.options import Json, examples
from penstock.cli.output import print_json, print_table
from penstock.cli.plan_answers import ValuesFile, catalogue_of, plan_errors, show
from penstock.cli.plan_cluster import EXAMPLES as CLUSTER_EXAMPLES
from penstock.cli.plan_cluster import cluster
from penstock.cli.plan_partitions import EXAMPLES as PARTITIONS_EXAMPLES
from penstock.cli.plan_partitions import partitions
from penstock.cli.plan_presets import EXAMPLES as PRESET_EXAMPLES
from penstock.cli.plan_presets import show_preset
from penstock.planning import cost as costs
from penstock.planning import scaling as scaling_rules
from penstock.planning.brokers import BrokerSpec, plan_brokers
from penstock.planning.durability import estimate
from penstock.planning.load import plan_load
from penstock.planning.storage import GB, plan_storage
from penstock.planning.tables import Region

app = Commands(
    help="Compute what a load needs: partitions, brokers, disks, cost. Every answer tells its reasons and sources.",
)

ReplicationFactor = Annotated[int, typer.Option("--replication-factor", min=1, help="Copies of each partition.")]
MessageBytes = Annotated[float, typer.Option("--message-bytes", help="Average size of a message, before compression.")]
FanOut = Annotated[float, typer.Option("--fan-out", help="How many consumer groups read each record.")]

app.command(epilog=CLUSTER_EXAMPLES)(cluster)
app.command(epilog=PARTITIONS_EXAMPLES)(partitions)
app.command("preset", epilog=PRESET_EXAMPLES)(show_preset)


@app.command(
    epilog=examples(
        (
            "penstock plan brokers --ingest-mb-s 500 --network-mb-s 1250 --disk-write-mb-s 500",
            "three copies, one group that reads",
        ),
        (
            "penstock plan brokers --ingest-mb-s 500 --network-mb-s 1250 --disk-write-mb-s 500 --zones 3 --stored-gb "
            "90000 "
            "--disk-gb 16000",
            "with the data, and so that a zone may fail",
        ),
    )
)
def brokers(
    ingest_mb_s: Annotated[float, typer.Option("--ingest-mb-s", help="What all producers send, at peak.")],
    network_mb_s: Annotated[float, typer.Option("--network-mb-s", help="A broker's network, in each direction.")],
    disk_write_mb_s: Annotated[
        float, typer.Option("--disk-write-mb-s", help="What a broker's disks write, replicas included.")
    ],
    disk_read_mb_s: Annotated[
        float | None, typer.Option("--disk-read-mb-s", help="What its disks read; the same as they write if not given.")
    ] = None,
    messages_per_s: Annotated[float, typer.Option("--messages-per-s", help="All messages, at peak.")] = 0.0,
    tested_messages_per_s: Annotated[
        float | None, typer.Option("--tested-messages-per-s", help="The most that one broker was measured to take.")
    ] = None,
    replication_factor: ReplicationFactor = 3,
    fan_out: FanOut = 1.0,
    cold_share: Annotated[float, typer.Option("--cold-share", help="Share of reads that miss the page cache.")] = 0.0,
    zones: Annotated[int, typer.Option("--zones", min=1, help="Zones that brokers are spread over.")] = 1,
    partitions_: Annotated[int, typer.Option("--partitions", min=0, help="Partitions of all topics.")] = 0,
    stored_gb: Annotated[float, typer.Option("--stored-gb", help="Data of all copies, without headroom.")] = 0.0,
    disk_gb: Annotated[float | None, typer.Option("--disk-gb", help="Size of a broker's disks.")] = None,
    page_cache_gb: Annotated[float, typer.Option("--page-cache-gb", help="Memory for the page cache.")] = 0.0,
    rebuild_mb_s: Annotated[
        float | None,
        typer.Option(
            "--rebuild-mb-s",
            help="Rate at which a lost broker's data is copied back; half of the slower of "
            "network and disk if not given.",
        ),
    ] = None,
    values: ValuesFile = None,
    json: Json = False,
) -> None:
    """Brokers that a load at peak needs, also without one broker or zone."""
    unlimited = float("inf")
    catalogue = catalogue_of(values)
    with plan_errors():
        spec = BrokerSpec(
            network_mb_s=network_mb_s,
            disk_write_mb_s=disk_write_mb_s,
            disk_read_mb_s=disk_write_mb_s if disk_read_mb_s is None else disk_read_mb_s,
            disk_bytes=unlimited if disk_gb is None else disk_gb * GB,
            page_cache_bytes=page_cache_gb * GB,
            tested_messages_per_s=unlimited if tested_messages_per_s is None else tested_messages_per_s,
        )
        answer = plan_brokers(
            catalogue,
            spec,
            ingest_mb_s=ingest_mb_s,
            messages_per_s=messages_per_s,
            replication_factor=replication_factor,
            fan_out=fan_out,
            cold_share=cold_share,
            zones=zones,
            partitions=partitions_,
            stored_bytes=stored_gb * GB,
            rebuild_mb_s=rebuild_mb_s,
        )
    show("Brokers", answer, catalogue, json=json)


@app.command(
    epilog=examples(
        (
            "penstock plan storage --messages-per-s 1000000 --message-bytes 1000 --retention-days 7 --brokers 10",
            "indexes and open segments are computed",
        ),
        (
            "penstock plan storage --messages-per-s 1000000 --message-bytes 1000 --retention-days 7 --overhead 1.2",
            "a factor of your own instead",
        ),
    )
)
def storage(
    messages_per_s: Annotated[float, typer.Option("--messages-per-s", help="Messages, on average.")],
    message_bytes: MessageBytes,
    retention_days: Annotated[float | None, typer.Option("--retention-days", help="How long records are kept.")] = None,
    retention_class: Annotated[
        str | None,
        typer.Option("--retention-class", metavar="CLASS", help="logs, events, default or critical, instead of days."),
    ] = None,
    replication_factor: ReplicationFactor = 3,
    compression: Annotated[
        str, typer.Option("--compression", metavar="CODEC", help="none, snappy, lz4, gzip or zstd.")
    ] = "none",
    compression_ratio: Annotated[
        float | None, typer.Option("--compression-ratio", help="A measured ratio, instead of the codec's usual one.")
    ] = None,
    overhead: Annotated[
        float | None,
        typer.Option("--overhead", help="A factor for indexes and slack; both are computed if it is not given."),
    ] = None,
    partitions_: Annotated[int, typer.Option("--partitions", min=0, help="Partitions of all topics.")] = 0,
    brokers_: Annotated[int, typer.Option("--brokers", min=1, help="Brokers that share the data.")] = 1,
    values: ValuesFile = None,
    json: Json = False,
) -> None:
    """Disk space for records, indexes and open segments, with headroom."""
    catalogue = catalogue_of(values)
    with plan_errors():
        ratio = costs.compression_ratio(catalogue, compression) if compression_ratio is None else compression_ratio
        days = costs.retention_days(catalogue, retention_days, retention_class)
        answer = plan_storage(
            catalogue,
            messages_per_s=messages_per_s,
            message_bytes=message_bytes,
            retention_days=days,
            replication_factor=replication_factor,
            compression_ratio=ratio,
            overhead=overhead,
            partitions=partitions_,
            brokers=brokers_,
        )
    show("Storage", answer, catalogue, json=json)


@app.command(
    epilog=examples(
        (
            "penstock plan cost --brokers 100 --stored-gb 6000000 --messages-per-s 3000000 --egress-gb 500000",
            "document 001's case",
        ),
    )
)
def cost(
    brokers_: Annotated[int, typer.Option("--brokers", min=1, help="Brokers.")],
    stored_gb: Annotated[float, typer.Option("--stored-gb", help="Data of all copies.")],
    messages_per_s: Annotated[float, typer.Option("--messages-per-s", help="Messages, on average.")],
    message_bytes: MessageBytes = 1000.0,
    fan_out: FanOut = 1.0,
    egress_gb: Annotated[
        float | None,
        typer.Option("--egress-gb", help="Traffic a month that leaves and is billed; all reads if not given."),
    ] = None,
    cross_zone_mb_s: Annotated[
        float, typer.Option("--cross-zone-mb-s", help="Traffic between zones, on average.")
    ] = 0.0,
    reserved: Annotated[bool, typer.Option("--reserved", help="Reserved instances.")] = False,
    people: Annotated[bool, typer.Option(help="Count engineers, support and training.")] = True,
    values: ValuesFile = None,
    json: Json = False,
) -> None:
    """Cost a month, and per million messages."""
    catalogue = catalogue_of(values)
    with plan_errors():
        answer = costs.plan_cost(
            catalogue,
            brokers=brokers_,
            stored_bytes=stored_gb * GB,
            messages_per_s=messages_per_s,
            message_bytes=message_bytes,
            fan_out=fan_out,
            egress_bytes=None if egress_gb is None else egress_gb * GB,
            cross_zone_mb_s=cross_zone_mb_s,
            reserved=reserved,
            people=people,
        )
    show("Cost a month", answer, catalogue, json=json)


@app.command(
    epilog=examples(
        ("penstock plan tiers --gb-per-day 100 --retention-days 365", "seven days hot, to thirty warm, the rest cold"),
        (
            "penstock plan tiers --gb-per-day 100 --retention-days 7 --hot-days 1 --warm-days 1",
            "one day on local disks",
        ),
    )
)
def tiers(
    gb_per_day: Annotated[float, typer.Option("--gb-per-day", help="New data a day, one copy.")],
    retention_days: Annotated[float, typer.Option("--retention-days", help="How long records are kept.")],
    replication_factor: ReplicationFactor = 3,
    hot_days: Annotated[float | None, typer.Option("--hot-days", help="Age up to which data is on fast disks.")] = None,
    warm_days: Annotated[
        float | None, typer.Option("--warm-days", help="Age up to which it is on slower ones.")
    ] = None,
    cold_holds_all: Annotated[
        bool,
        typer.Option("--cold-holds-all", help="Object storage has young records too, as with Kafka's tiered storage."),
    ] = False,
    values: ValuesFile = None,
    json: Json = False,
) -> None:
    """Cost of old data on cheaper storage, beside everything on local disks."""
    catalogue = catalogue_of(values)
    with plan_errors():
        answer = costs.plan_tiers(
            catalogue,
            bytes_per_day=gb_per_day * GB,
            retention_days=retention_days,
            replication_factor=replication_factor,
            hot_days=hot_days,
            warm_days=warm_days,
            cold_holds_all=cold_holds_all,
        )
    show("Tiers", answer, catalogue, json=json)


@app.command(
    "right-size",
    epilog=examples(("penstock plan right-size --brokers 20 --utilisation 0.4", "how many run at 70 %")),
)
def right_size(
    brokers_: Annotated[int, typer.Option("--brokers", min=1, help="Brokers now.")],
    utilisation: Annotated[float, typer.Option("--utilisation", help="Average utilisation now, from 0 to 1.")],
    wanted: Annotated[float, typer.Option("--wanted", help="Utilisation to reach, from 0 to 1.")] = 0.7,
    off_peak_brokers: Annotated[
        int | None, typer.Option("--off-peak-brokers", min=0, help="Machines outside the busy hours, if fewer.")
    ] = None,
    peak_hours_per_day: Annotated[float, typer.Option("--peak-hours-per-day", help="Busy hours of a day.")] = 12.0,
    values: ValuesFile = None,
    json: Json = False,
) -> None:
    """Brokers that carry the same load at a better utilisation."""
    catalogue = catalogue_of(values)
    with plan_errors():
        answer = costs.right_size(
            catalogue,
            brokers=brokers_,
            utilisation=utilisation,
            wanted=wanted,
            off_peak_brokers=off_peak_brokers,
            peak_hours_per_day=peak_hours_per_day,
        )
    show("Right-sizing", answer, catalogue, json=json)


@app.command(
    epilog=examples(("penstock plan consumers --mb-s 80 --per-consumer-mb-s 10 --partitions 12", "a static count"))
)
def consumers(
    mb_s: Annotated[float, typer.Option("--mb-s", help="What the group must read, at peak.")],
    per_consumer_mb_s: Annotated[float, typer.Option("--per-consumer-mb-s", help="What one consumer reads, measured.")],
    partitions_: Annotated[int, typer.Option("--partitions", min=1, help="Partitions of the topic.")],
    values: ValuesFile = None,
    json: Json = False,
) -> None:
    """Consumers that a group needs, and how many would be idle."""
    catalogue = catalogue_of(values)
    with plan_errors():
        answer = scaling_rules.plan_consumers(
            catalogue, mb_s=mb_s, per_consumer_mb_s=per_consumer_mb_s, partitions=partitions_
        )
    show("Consumers", answer, catalogue, json=json)


@app.command(epilog=examples(("penstock plan registry --schemas 5000", "instances, memory and cores")))
def registry(
    schemas: Annotated[int, typer.Option("--schemas", min=0, help="Active schemas.")],
    json: Json = False,
) -> None:
    """Size of a schema registry."""
    with plan_errors():
        answer = scaling_rules.plan_registry(schemas)
    show("Schema registry", answer, catalogue_of(None), json=json)


@app.command(
    epilog=examples(
        (
            "penstock plan regions --model hub --load-mb-s 50 --load-mb-s 20 --load-mb-s 30",
            "the first region is the hub",
        )
    )
)
def regions(
    model: Annotated[Region, typer.Option("--model", help="How regions share data.")],
    load_mb_s: Annotated[
        list[float],
        typer.Option("--load-mb-s", help="What producers send in a region; give it once for each, the main one first."),
    ],
    json: Json = False,
) -> None:
    """Capacity of each region, and the traffic between them."""
    with plan_errors():
        answer = scaling_rules.plan_regions(model, load_mb_s)
    show("Regions", answer, catalogue_of(None), json=json)


@app.command(
    epilog=examples(
        ("penstock plan durability --replication-factor 3 --min-insync-replicas 2", "acks=all"),
        ("penstock plan durability --replication-factor 3 --acks 1 --lagging-share 0.01", "followers lag now and then"),
    )
)
def durability(
    replication_factor: ReplicationFactor = 3,
    min_insync_replicas: Annotated[
        int,
        typer.Option("--min-insync-replicas", min=1, help="Copies that must have a record before it is acknowledged."),
    ] = 2,
    acks: Annotated[str, typer.Option("--acks", metavar="all|1", help="What producers wait for.")] = "all",
    failures_per_year: Annotated[
        float | None, typer.Option("--failures-per-year", help="How often one broker loses its data.")
    ] = None,
    repair_hours: Annotated[float | None, typer.Option("--repair-hours", help="Until its data is copied back.")] = None,
    lagging_share: Annotated[
        float, typer.Option("--lagging-share", help="Share of the time that a replica is out of sync.")
    ] = 0.0,
    values: ValuesFile = None,
    json: Json = False,
) -> None:
    """Probability that acknowledged data is lost within a year."""
    catalogue = catalogue_of(values)
    with plan_errors():
        answer = estimate(
            catalogue,
            replication_factor=replication_factor,
            min_insync_replicas=min_insync_replicas,
            acks_all=_acks_all(acks),
            failures_per_year=failures_per_year,
            repair_hours=repair_hours,
            lagging_share=lagging_share,
        )
    show("Durability", answer, catalogue, json=json)


@app.command(epilog=examples(("penstock plan milestones --mb-s 80", "the class of this load, and the next step")))
def milestones(
    mb_s: Annotated[float, typer.Option("--mb-s", help="What all producers send.")],
    json: Json = False,
) -> None:
    """Where a cluster stands on its way, and what the next step is."""
    with plan_errors():
        answer = scaling_rules.plan_milestone(mb_s)
    show("Milestones", answer, catalogue_of(None), json=json)


@app.command(
    epilog=examples(
        ("penstock plan scaling --cpu 0.8 --network 0.4", "larger brokers, or more of them?"),
        ("penstock plan scaling --partitions 1800 --request-p95-ms 12", "thresholds of a broker"),
    )
)
def scaling(
    cpu: Annotated[float | None, typer.Option("--cpu", help="CPU utilisation, from 0 to 1.")] = None,
    network: Annotated[float | None, typer.Option("--network", help="Network utilisation, from 0 to 1.")] = None,
    memory: Annotated[float | None, typer.Option("--memory", help="Memory utilisation, from 0 to 1.")] = None,
    stall_p99_ms: Annotated[
        float | None, typer.Option("--stall-p99-ms", help="Stalls of the event loop (GC pauses on a JVM), at p99.")
    ] = None,
    message_rate: Annotated[
        float | None, typer.Option("--message-rate", help="Share of the tested maximum, from 0 to 1.")
    ] = None,
    partitions_: Annotated[float | None, typer.Option("--partitions", help="Replicas on the broker.")] = None,
    request_p95_ms: Annotated[float | None, typer.Option("--request-p95-ms", help="Request latency, at p95.")] = None,
    values: ValuesFile = None,
    json: Json = False,
) -> None:
    """What to scale, by measures of a broker."""
    catalogue = catalogue_of(values)
    with plan_errors():
        answer = scaling_rules.advise_scaling(
            catalogue,
            cpu=cpu,
            network=network,
            memory=memory,
            stall_p99_ms=stall_p99_ms,
            message_rate=message_rate,
            partitions=partitions_,
            request_p95_ms=request_p95_ms,
        )
    show("Scaling", answer, catalogue, json=json)


@app.command(
    epilog=examples(
        (
            "penstock plan load --average-messages-per-s 3e6 --peak-messages-per-s 1e7 --message-bytes 1000 --brokers "
            "100 "
            "--partitions 1000000 --fan-out 2",
            "document 001's case",
        ),
    )
)
def load(
    average_messages_per_s: Annotated[float, typer.Option("--average-messages-per-s", help="Messages, on average.")],
    peak_messages_per_s: Annotated[float, typer.Option("--peak-messages-per-s", help="Messages, at peak.")],
    message_bytes: MessageBytes,
    brokers_: Annotated[int, typer.Option("--brokers", min=1, help="Brokers that share the load.")],
    partitions_: Annotated[int, typer.Option("--partitions", min=1, help="Partitions of all topics.")],
    replication_factor: ReplicationFactor = 3,
    fan_out: FanOut = 1.0,
    cold_share: Annotated[float, typer.Option("--cold-share", help="Share of reads that miss the page cache.")] = 0.0,
    messages_per_batch: Annotated[float, typer.Option("--messages-per-batch", help="For disk operations.")] = 1.0,
    topics: Annotated[int, typer.Option("--topics", min=0, help="For metadata.")] = 0,
    groups: Annotated[int, typer.Option("--groups", min=0, help="For metadata.")] = 0,
    producers: Annotated[int, typer.Option("--producers", min=0, help="Connected at the same time.")] = 0,
    consumers_: Annotated[int, typer.Option("--consumers", min=0, help="Connected at the same time.")] = 0,
    partitions_per_consumer: Annotated[float, typer.Option("--partitions-per-consumer", help="For offsets.")] = 1.0,
    commits_per_s: Annotated[float, typer.Option("--commits-per-s", help="Commits of offsets.")] = 0.0,
    values: ValuesFile = None,
    json: Json = False,
) -> None:
    """Network, CPU, memory, disk operations, offsets and metadata of a load, by document 001's factors."""
    catalogue = catalogue_of(values)
    with plan_errors():
        answer = plan_load(
            catalogue,
            average_messages_per_s=average_messages_per_s,
            peak_messages_per_s=peak_messages_per_s,
            message_bytes=message_bytes,
            brokers=brokers_,
            partitions=partitions_,
            replication_factor=replication_factor,
            fan_out=fan_out,
            cold_share=cold_share,
            messages_per_batch=messages_per_batch,
            topics=topics,
            groups=groups,
            producers=producers,
            consumers=consumers_,
            partitions_per_consumer=partitions_per_consumer,
            commits_per_s=commits_per_s,
        )
    show("Load", answer, catalogue, json=json)


@app.command(
    epilog=examples(
        ("penstock plan sizes --cores 20 --memory-gb 70", "the next sizes in document 002's steps"),
        ("penstock plan sizes --cores 100 --large", "up to document 001's larger machines"),
    )
)
def sizes(
    cores: Annotated[float | None, typer.Option("--cores", help="Cores that a broker needs.")] = None,
    memory_gb: Annotated[float | None, typer.Option("--memory-gb", help="Memory that it needs.")] = None,
    heap_gb: Annotated[float | None, typer.Option("--heap-gb", help="JVM heap, for Apache Kafka.")] = None,
    disk_tb: Annotated[float | None, typer.Option("--disk-tb", help="Disk that it needs.")] = None,
    iops: Annotated[float | None, typer.Option("--iops", help="Disk operations per second.")] = None,
    network_gbps: Annotated[float | None, typer.Option("--network-gbps", help="Network that it needs.")] = None,
    large: Annotated[bool, typer.Option("--large", help="Up to 128 cores, 512 GB and 100 Gbps (001).")] = False,
    json: Json = False,
) -> None:
    """The next size of a broker, or that one broker is not enough."""
    given = {"cpu": cores, "memory": memory_gb, "heap": heap_gb, "disk": disk_tb, "iops": iops, "network": network_gbps}
    with plan_errors():
        answer = scaling_rules.plan_sizes({name: size for name, size in given.items() if size is not None}, large=large)
    show("Sizes", answer, catalogue_of(None), json=json)


@app.command(
    "values",
    epilog=examples(
        ("penstock plan values", "names, values, units and sources"),
        ("penstock plan values --values mine.toml", "with your own in place"),
    ),
)
def list_values(values: ValuesFile = None, json: Json = False) -> None:
    """The thresholds, factors and prices that the planner uses, and that you may replace."""
    catalogue = catalogue_of(values)
    rows = list(catalogue.values.values())
    if json:
        print_json(
            [
                {"name": one.name, "value": one.value, "unit": one.unit, "source": one.source, "text": one.text}
                for one in rows
            ]
        )
        return
    print_table(
        "", ("name", "value", "unit", "source", "what it is"),
        [(one.name, one.shown, one.unit, one.source, one.text) for one in rows],
    )  # fmt: skip


def _acks_all(acks: str) -> bool:
    if acks not in ("all", "-1", "1"):
        raise CliError(f"--acks {acks}: it must be all or 1", exit_codes.USAGE)
    return acks != "1"
