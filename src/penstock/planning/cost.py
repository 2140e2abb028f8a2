"""What a cluster costs a month (L5), per million messages, and what would make it cheaper."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Final

from penstock.planning.catalogue import Answer, Catalogue, PlanError, Rule, not_negative, notes, positive, units, within
from penstock.planning.storage import DAY_S, GB, amount

DAYS_PER_MONTH: Final = 30
MONTH_S: Final = DAYS_PER_MONTH * DAY_S
MILLION: Final = 1_000_000

COST: Final = Rule(
    name="cost",
    source="001, Cost Analysis",
    formula="brokers, storage, egress, cross-zone traffic, load balancers, monitoring, people; ÷ messages a month",
    text="A month has 30 days. Storage and messages are computed from the average rate.",
    inputs=units(
        brokers="brokers",
        stored_bytes="bytes, all copies",
        messages_per_s="messages/s, on average",
        message_bytes="bytes",
        fan_out="consumer groups per record",
        egress_bytes="bytes a month",
        cross_zone_mb_s="MB/s, on average",
    ),
    slip="001 stores 2 PB where its own rates need 6 to 20 PB, and bills 500 TB of egress, a fifteenth of reading "
    "everything once. At the average rate the total is $755 K, $0.097 per million messages, and with one full read "
    "$1.12 M, $0.144. Its '$0.05 per billion' is $47.",
    values=(
        "price.broker",
        "price.hot_gb",
        "price.cold_gb",
        "price.egress_gb",
        "price.cross_zone_gb",
        "price.load_balancer",
        "price.load_balancers",
        "price.monitoring",
        "price.engineering",
        "price.support",
        "price.training",
    ),
)
RIGHT_SIZING: Final = Rule(
    name="right-sizing",
    source="000, Resource Right-Sizing",
    formula="brokers × utilisation ÷ wanted utilisation",
    text="A cluster that is used to 40 % on average runs at 70 % on fewer brokers.",
    inputs=units(brokers="brokers", utilisation="share, on average", wanted="share"),
    slip="000 says that 20 brokers at 40 % are 70 % on 12: they are 66.7 %.",
)
RETENTION_CLASSES: Final = Rule(
    name="retention-classes",
    source="000, Storage Optimization",
    formula="1 − days ÷ 7",
    text="Logs 1 day, events 3 days, the default 7, critical data 30.",
    inputs=units(retention_days="days"),
    slip="One day instead of seven saves 85.7 %, not 85 %.",
    values=("retention.logs_days", "retention.events_days", "retention.default_days", "retention.critical_days"),
)
TIERS: Final = Rule(
    name="tiers",
    source="000, Tiered Storage; 004, Tiered Storage",
    formula="bands of age: hot to 7 days, warm to 30, cold beyond; replicas in hot and warm, one copy in cold",
    text="Older data on cheaper storage.",
    inputs=units(bytes_per_day="bytes, one copy", retention_days="days", replication_factor="copies"),
    slip="000's $10, $5 and $2 per TB are $100, $50 and $20. 004 keeps one day local and seven remote: then the total "
    "retention is 604,800,000 ms, not 86,400,000, and that saves 85.7 % of the disk, not 90 %.",
    values=("price.hot_gb", "price.warm_gb", "price.cold_gb", "tiers.hot_days", "tiers.warm_days"),
)
PURCHASE: Final = Rule(
    name="purchase",
    source="000, Resource Right-Sizing",
    formula="compute × (1 − discount)",
    text="Spot instances save 70 % and may be taken away at any time: for consumers and Spark, not for brokers. "
    "Reserved ones save 40 %.",
    inputs=units(compute="$ a month"),
    values=("price.spot_discount", "price.reserved_discount"),
)
COMPRESSION: Final = Rule(
    name="compression",
    source="000, Storage Optimization",
    formula="bytes ÷ ratio",
    text="snappy and lz4 about 2 : 1, gzip and zstd about 3 : 1. `penstock perf codecs` measures your own data.",
    inputs=units(codec="name"),
    values=("compression.snappy", "compression.lz4", "compression.gzip", "compression.zstd"),
)
OFF_PEAK: Final = Rule(
    name="off-peak",
    source="000, Resource Right-Sizing",
    formula="(1 − hours at peak ÷ 24) × (1 − brokers off peak ÷ brokers) × compute",
    text="Scaling down outside the busy hours. Brokers that hold data cannot be stopped like this: it pays for "
    "consumers, "
    "Spark and clusters with tiered storage.",
    inputs=units(brokers="brokers", off_peak_brokers="brokers", peak_hours_per_day="h"),
    values=("price.broker",),
)

CODECS: Final = ("none", "snappy", "lz4", "gzip", "zstd")
RETENTION_CLASSES_OF_000: Final = ("logs", "events", "default", "critical")


def compression_ratio(catalogue: Catalogue, codec: str) -> float:
    """How many bytes become one."""
    if codec not in CODECS:
        raise PlanError(f"there is no codec {codec}: use one of {', '.join(CODECS)}")
    return 1.0 if codec == "none" else catalogue[f"compression.{codec}"]


def retention_days(catalogue: Catalogue, days: float | None, name: str | None) -> float:
    """The days given, or those of a retention class. Raises PlanError unless it is one of the two."""
    if (days is None) == (name is None):
        raise PlanError("give either the days or the class of the retention, and not both")
    if days is not None:
        return days
    if name not in RETENTION_CLASSES_OF_000:
        raise PlanError(f"there is no retention class {name}: use one of {', '.join(RETENTION_CLASSES_OF_000)}")
    return catalogue[f"retention.{name}_days"]


def retention_saving(catalogue: Catalogue, name: str) -> float:
    """The share of the disk that a retention class saves beside the default; negative if it takes more."""
    return 1 - catalogue[f"retention.{name}_days"] / catalogue["retention.default_days"]


def off_peak_saving(catalogue: Catalogue, *, brokers: int, off_peak_brokers: int, peak_hours_per_day: float) -> float:
    """$ a month that running fewer machines outside the busy hours saves."""
    positive(brokers=brokers)
    within(0, brokers, off_peak_brokers=off_peak_brokers)
    within(0, 24, peak_hours_per_day=peak_hours_per_day)
    return (brokers - off_peak_brokers) * catalogue["price.broker"] * (1 - peak_hours_per_day / 24)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostPlan(Answer):
    """In US dollars a month."""

    compute: float
    storage: float
    egress: float
    cross_zone: float
    load_balancers: float
    monitoring: float
    infrastructure: float
    operations: float
    total: float
    messages_per_month: float
    per_million_messages: float


def plan_cost(
    catalogue: Catalogue,
    *,
    brokers: int,
    stored_bytes: float,
    messages_per_s: float,
    cold_bytes: float = 0.0,
    message_bytes: float = 1_000,
    fan_out: float = 1.0,
    egress_bytes: float | None = None,
    cross_zone_mb_s: float = 0.0,
    reserved: bool = False,
    people: bool = True,
) -> CostPlan:
    """`messages_per_s` is the average. `egress_bytes` a month; without it `fan_out` reads of everything leave.

    `cold_bytes` are in object storage, beside the `stored_bytes` on local disks.
    """
    positive(brokers=brokers)
    not_negative(
        stored_bytes=stored_bytes,
        cold_bytes=cold_bytes,
        messages_per_s=messages_per_s,
        fan_out=fan_out,
        cross_zone_mb_s=cross_zone_mb_s,
    )
    positive(message_bytes=message_bytes)
    price = catalogue
    compute = brokers * price["price.broker"] * (1 - price["price.reserved_discount"] if reserved else 1)
    cold = cold_bytes / GB * price["price.cold_gb"]
    storage = stored_bytes / GB * price["price.hot_gb"] + cold
    leaving = messages_per_s * message_bytes * MONTH_S * fan_out if egress_bytes is None else egress_bytes
    not_negative(egress_bytes=leaving)
    egress = leaving / GB * price["price.egress_gb"]
    crossing = cross_zone_mb_s * 1e6 * MONTH_S
    cross_zone = crossing / GB * price["price.cross_zone_gb"]
    balancers = price["price.load_balancers"] * price["price.load_balancer"]
    infrastructure = compute + storage + egress + cross_zone + balancers + price["price.monitoring"]
    operations = price["price.engineering"] + price["price.support"] + price["price.training"] if people else 0.0
    messages = messages_per_s * MONTH_S
    total = infrastructure + operations
    return CostPlan(
        compute=compute,
        storage=storage,
        egress=egress,
        cross_zone=cross_zone,
        load_balancers=balancers,
        monitoring=price["price.monitoring"],
        infrastructure=infrastructure,
        operations=operations,
        total=total,
        messages_per_month=messages,
        per_million_messages=total / (messages / MILLION) if messages else 0.0,
        reasons=notes(
            f"{brokers} brokers × ${price['price.broker']:,.0f}{' reserved' if reserved else ''} = ${compute:,.0f}",
            f"{amount(stored_bytes)} × ${price['price.hot_gb']:g}/GB = ${storage - cold:,.0f}",
            f"{amount(cold_bytes)} in object storage × ${price['price.cold_gb']:g}/GB = ${cold:,.0f}" if cold else None,
            f"{amount(leaving)} of egress × ${price['price.egress_gb']:g}/GB = ${egress:,.0f}",
            f"{amount(crossing)} between zones × ${price['price.cross_zone_gb']:g}/GB = ${cross_zone:,.0f}"
            if crossing
            else None,
            f"load balancers ${balancers:,.0f}, monitoring ${price['price.monitoring']:,.0f}",
            f"people ${operations:,.0f}" if people else None,
            f"${total:,.0f} for {messages:,.0f} messages a month",
        ),
        notes=notes(
            "Egress is billed for all data, read by every group: give the bytes that leave if most readers are inside."
            if egress_bytes is None and fan_out
            else None,
        ),
        rules=("cost", *(("purchase",) if reserved else ())),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class RightSizing(Answer):
    brokers: int
    utilisation: float
    saved_per_month: float
    reserved_saving: float
    """$ a month that reserving the remaining brokers saves as well."""
    spot_saving: float
    """The same for spot instances, which suit consumers and not brokers."""
    off_peak_saving: float


def right_size(
    catalogue: Catalogue,
    *,
    brokers: int,
    utilisation: float,
    wanted: float = 0.7,
    off_peak_brokers: int | None = None,
    peak_hours_per_day: float = 24.0,
) -> RightSizing:
    """How many brokers carry the same load at the wanted utilisation, and what else would save."""
    positive(brokers=brokers)
    within(0.01, 1, utilisation=utilisation)
    within(0.05, 1, wanted=wanted)
    fewest = max(catalogue.count("brokers.minimum"), ceil(round(brokers * utilisation / wanted, 9)))
    after = min(brokers, fewest) if utilisation < wanted else fewest
    saved = (brokers - after) * catalogue["price.broker"]
    compute = after * catalogue["price.broker"]
    off_peak = 0.0
    if off_peak_brokers is not None:
        off_peak = off_peak_saving(
            catalogue, brokers=after, off_peak_brokers=off_peak_brokers, peak_hours_per_day=peak_hours_per_day
        )
    return RightSizing(
        brokers=after,
        utilisation=brokers * utilisation / after,
        saved_per_month=saved,
        reserved_saving=compute * catalogue["price.reserved_discount"],
        spot_saving=compute * catalogue["price.spot_discount"],
        off_peak_saving=off_peak,
        reasons=(
            f"{brokers} brokers × {utilisation:.0%} = {brokers * utilisation:g} brokers' worth of load",
            f"÷ {wanted:.0%} = {after} brokers at {brokers * utilisation / after:.1%}",
        ),
        notes=notes(
            "Average utilisation hides peaks: check the peak against 90 % with one broker gone.",
            "Spot instances may be taken away at any time: for consumers and Spark, not for brokers.",
        ),
        rules=("right-sizing", "purchase", *(("off-peak",) if off_peak_brokers is not None else ())),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TierPlan(Answer):
    hot_bytes: float
    warm_bytes: float
    cold_bytes: float
    cost: float
    cost_all_hot: float
    saved_share: float
    disk_saved_share: float


def plan_tiers(
    catalogue: Catalogue,
    *,
    bytes_per_day: float,
    retention_days: float,
    replication_factor: int = 3,
    hot_days: float | None = None,
    warm_days: float | None = None,
    cold_holds_all: bool = False,
) -> TierPlan:
    """Bands of age: up to `hot_days` on local disks, up to `warm_days` on slower ones, the rest in object storage.

    With `cold_holds_all` object storage has the younger records too, as with Kafka's tiered storage, which copies a
    segment there as soon as it is closed.
    """
    hot_days = catalogue["tiers.hot_days"] if hot_days is None else hot_days
    warm_days = catalogue["tiers.warm_days"] if warm_days is None else warm_days
    positive(bytes_per_day=bytes_per_day, retention_days=retention_days, replication_factor=replication_factor)
    not_negative(hot_days=hot_days, warm_days=warm_days)
    if warm_days < hot_days:
        raise PlanError(f"warm_days ({warm_days:g}) must not be less than hot_days ({hot_days:g})")
    hot = bytes_per_day * min(retention_days, hot_days) * replication_factor
    warm = bytes_per_day * max(0.0, min(retention_days, warm_days) - hot_days) * replication_factor
    cold = bytes_per_day * max(0.0, retention_days - warm_days)
    if cold and cold_holds_all:
        cold = bytes_per_day * retention_days
    everything = bytes_per_day * retention_days * replication_factor
    cost = (
        hot * catalogue["price.hot_gb"] + warm * catalogue["price.warm_gb"] + cold * catalogue["price.cold_gb"]
    ) / GB
    all_hot = everything * catalogue["price.hot_gb"] / GB
    return TierPlan(
        hot_bytes=hot,
        warm_bytes=warm,
        cold_bytes=cold,
        cost=cost,
        cost_all_hot=all_hot,
        saved_share=1 - cost / all_hot if all_hot else 0.0,
        disk_saved_share=1 - (hot + warm) / everything,
        reasons=(
            f"hot: {amount(hot)} in {replication_factor} copies, warm: {amount(warm)}, "
            f"cold: {amount(cold)} in one copy",
            f"${cost:,.0f} a month beside ${all_hot:,.0f} with everything on local disks",
        ),
        rules=("tiers",),
    )
