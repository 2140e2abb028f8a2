"""A replay in a process of its own, to be killed. Run with one argument: its settings as JSON."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from penstock.pipeline.builtin import replaying


def main(settings: dict[str, Any]) -> None:
    from pyspark.sql import SparkSession

    from support.spark import LOCAL_CONFIG

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("penstock-replay")
    for name, value in LOCAL_CONFIG.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    replaying.LEASE_S = settings.pop("lease_s")  # type: ignore[misc]
    replaying.replay(spark, settings.pop("broker"), settings.pop("source"), settings.pop("target"), **settings)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
