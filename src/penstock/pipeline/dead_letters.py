"""Records that do not parse, on their way to a dead-letter topic: as they were, with why and from where.

Key and value are the original bytes, and the original headers stay. Added to them are headers of text:

    penstock.error.reason      why it does not parse
    penstock.error.topic       where it came from
    penstock.error.partition
    penstock.error.offset
    penstock.error.timestamp   the record's own, in milliseconds
    penstock.error.pipeline    who could not parse it
    penstock.error.source      as which of its streams

So a record can be sent again, once whatever was wrong is set right, by copying it back without those headers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.pipeline.decoding import Decoded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PREFIX = "penstock.error."


def dead_letter_rows(decoded: Decoded, pipeline: str) -> DataFrame:
    """The bad records of a source as rows for a topic: `key`, `value`, `headers`. The raw rows must have headers."""
    from pyspark.sql import functions as F

    bad = decoded.bad()
    facts = {
        "reason": F.col("reason"),
        "topic": F.col("topic"),
        "partition": F.col("partition").cast("string"),
        "offset": F.col("offset").cast("string"),
        "timestamp": F.unix_millis("timestamp").cast("string"),
        "pipeline": F.lit(pipeline),
        "source": F.lit(decoded.source.name),
    }
    added = F.array(
        *(
            F.struct(F.lit(PREFIX + name).alias("key"), F.encode(fact, "UTF-8").alias("value"))
            for name, fact in facts.items()
        )
    )
    headers = F.when(F.col("headers").isNull(), added).otherwise(F.concat(F.col("headers"), added))
    return bad.select("key", "value", headers.alias("headers"))
