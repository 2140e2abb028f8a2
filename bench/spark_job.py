"""One batch of a stream to nowhere, and the end: what `bench.spark` starts to see how long a start takes.

FORMAT OPTIONS CHECKPOINT [JARS]

The session is the one that the documentation of either side tells users to make.
"""

from __future__ import annotations

import json
import os
import sys
from typing import cast

from pyspark.sql import SparkSession

from penstock.spark import build_session

MASTER = "local[2]"
MAX_OFFSETS = "100"


def main(format: str, options: str, checkpoint: str, jars: str = "") -> None:
    config = {
        "spark.ui.enabled": "false", "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1",
    }  # fmt: skip
    spark = build_session(master=MASTER, config=config) if format == "penstock" else plain_session(config, jars)
    given = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": MAX_OFFSETS} | json.loads(options)
    stream = spark.readStream.format(format).options(**given).load()
    query = stream.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
    while query.lastProgress is None or not query.lastProgress.numInputRows:
        query.awaitTermination(cast(int, 0.05))
    # The process ends here: what comes after the commit is not counted.
    os._exit(0)


def plain_session(config: dict[str, str], jars: str) -> SparkSession:
    builder = SparkSession.builder.master(MASTER).config("spark.jars", jars)
    for name, value in config.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


if __name__ == "__main__":
    main(*sys.argv[1:])
