"""One batch of a stream to nowhere, and the end: what `bench.spark` starts to see how long a start takes.

FORMAT OPTIONS CHECKPOINT [JARS]
"""

from __future__ import annotations

import json
import os
import sys

from pyspark.sql import SparkSession

MAX_OFFSETS = "100"


def main(format: str, options: str, checkpoint: str, jars: str = "") -> None:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
    if jars:
        builder = builder.config("spark.jars", jars)
    spark = builder.getOrCreate()
    given = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": MAX_OFFSETS} | json.loads(options)
    stream = spark.readStream.format(format).options(**given).load()
    query = stream.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
    while query.lastProgress is None or not query.lastProgress.numInputRows:
        query.awaitTermination(0.05)
    # The process ends here: what comes after the commit is not counted.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
