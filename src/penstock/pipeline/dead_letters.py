"""Records that do not parse, on their way to a dead-letter topic: as they were, with why and from where.

Key and value are the original bytes, and the original headers stay, with those of `dead_letter_headers` after them. So
a record can be sent again, once whatever was wrong is set right, by copying it back without those.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.pipeline import dead_letter_headers as names
from penstock.pipeline.decoding import Decoded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def dead_letter_rows(decoded: Decoded, pipeline: str) -> DataFrame:
    """The bad records of a source as rows for a topic: `key`, `value`, `headers`. The raw rows must have headers."""
    from pyspark.sql import functions as F

    bad = decoded.bad()
    facts = {
        names.REASON: F.col("reason"),
        names.TOPIC: F.col("topic"),
        names.PARTITION: F.col("partition").cast("string"),
        names.OFFSET: F.col("offset").cast("string"),
        names.TIMESTAMP: F.unix_millis("timestamp").cast("string"),
        names.PIPELINE: F.lit(pipeline),
        names.SOURCE: F.lit(decoded.source.name),
    }
    added = F.array(
        *(F.struct(F.lit(name).alias("key"), F.encode(fact, "UTF-8").alias("value")) for name, fact in facts.items())
    )
    headers = F.when(F.col("headers").isNull(), added).otherwise(F.concat(F.col("headers"), added))
    return bad.select("key", "value", headers.alias("headers"))
