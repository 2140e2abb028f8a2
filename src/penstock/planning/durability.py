"""How likely it is that acknowledged data is lost (L12).

The model: brokers fail independently of each other, at a yearly rate λ, and are repaired within a time w. A replica is
out of sync with probability q: while it is being repaired (λw), and for whatever share of the time it lags behind. An
acknowledged record is then in k of the n replicas, with k at least min.insync.replicas, and is lost if one of these
fails and the others follow before it is repaired:

    Σ over k ≥ m of   C(n, k) (1 − q)^k q^(n − k)   ×   k λ (λw)^(k − 1)

It leaves out what causes most real losses: operators, software, and failures that hit several brokers at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb, inf, log10
from typing import Final

from penstock.planning.brokers import COPIES_MAX
from penstock.planning.catalogue import Answer, Catalogue, PlanError, Rule, notes, positive, units, within
from penstock.planning.tables import REPLICATION_FACTORS

HOURS_PER_YEAR: Final = 8_766

DURABILITY: Final = Rule(
    name="durability",
    source="001, Replication Configuration",
    formula="Σ over k ≥ m of C(n, k) (1 − q)^k q^(n − k) × k λ (λw)^(k − 1)",
    text="n replicas, m = min.insync.replicas (1 with acks=1), λ failures a year, w repair time, q share out of sync.",
    inputs=units(
        replication_factor="copies",
        min_insync_replicas="copies",
        failures_per_year="per broker",
        repair_hours="h",
        lagging_share="share of the time",
    ),
    slip="001 gives eleven nines for synchronous and four for asynchronous replication without saying for which "
    "failure "
    "rate and repair time; here both are inputs. It waits for 'all replicas' in one place and a 'quorum (2/3)' in "
    "another.",
    values=("durability.failures_per_year", "durability.repair_hours"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Durability(Answer):
    copies: int
    """That hold an acknowledged record for certain."""
    yearly_loss: float
    """The probability that a given partition loses acknowledged data within a year."""
    nines: float
    write_failures_survived: int
    """Brokers that may fail and acks=all still writes."""
    data_failures_survived: int
    """Brokers that may fail one after the other, with repair between them, and the data is still there."""


def estimate(
    catalogue: Catalogue,
    *,
    replication_factor: int,
    min_insync_replicas: int = 1,
    acks_all: bool = True,
    failures_per_year: float | None = None,
    repair_hours: float | None = None,
    lagging_share: float = 0.0,
) -> Durability:
    """`lagging_share`: of the time a replica is out of sync although it runs."""
    if failures_per_year is None:
        failures_per_year = catalogue["durability.failures_per_year"]
    repair_hours = catalogue["durability.repair_hours"] if repair_hours is None else repair_hours
    within(1, COPIES_MAX, replication_factor=replication_factor)
    positive(min_insync_replicas=min_insync_replicas, repair_hours=repair_hours)
    within(0, 100, failures_per_year=failures_per_year)
    within(0, 1, lagging_share=lagging_share)
    if min_insync_replicas > replication_factor:
        raise PlanError(
            f"min.insync.replicas ({min_insync_replicas}) is more than the replication factor ({replication_factor})"
        )
    copies = min_insync_replicas if acks_all else 1
    unavailable = failures_per_year * repair_hours / HOURS_PER_YEAR
    out_of_sync = min(1.0, unavailable + lagging_share)
    by_copies = {
        count: comb(replication_factor, count)
        * (1 - out_of_sync) ** count
        * out_of_sync ** (replication_factor - count)
        * count
        * failures_per_year
        * min(1.0, unavailable) ** (count - 1)
        for count in range(copies, replication_factor + 1)
    }
    yearly = min(1.0, sum(by_copies.values()))
    return Durability(
        copies=copies,
        yearly_loss=yearly,
        nines=-log10(yearly) if yearly else inf,
        write_failures_survived=replication_factor - min_insync_replicas if acks_all else replication_factor - 1,
        data_failures_survived=replication_factor - 1,
        reasons=(
            f"{replication_factor} replicas, each failing {failures_per_year:g} times a year, repaired within "
            f"{repair_hours:g} h, out of sync {out_of_sync:.2g} of the time",
            *(f"records in {count} replicas: {loss:.2e} a year" for count, loss in by_copies.items()),
        ),
        notes=notes(
            next(
                (
                    f"Replication factor {row.factor} (000): {row.advantages}; {row.drawbacks}."
                    for row in REPLICATION_FACTORS
                    if row.factor == replication_factor
                ),
                None,
            ),
            "Failures are taken as independent. Racks, power, software and operators are not in this figure.",
            "acks=1 loses what its followers have not fetched yet, with every failure of a leader."
            if not acks_all
            else None,
            "One replica: every failure of its disk loses data." if replication_factor == 1 else None,
        ),
        rules=("durability", "replication-factor"),
    )  # fmt: skip
