"""Which pipeline can run on this machine, and what to say where the real one cannot."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Final, NamedTuple

from penstock import install_command
from penstock.demo.consumers import ConsumerPipeline
from penstock.demo.pipelines import ShopPipeline

NEEDED: Final = ("pyspark", "pyarrow", "numpy", "pandas", "deltalake")
INSTEAD: Final = "The broker and the shop run all the same, and a consumer group in plain Python computes the figures."


class Chosen(NamedTuple):
    pipeline: ShopPipeline
    has_tables: bool = False
    notice: str = ""
    """Why it is not Spark, where that was not asked for."""


def choose_pipeline(data: Path, *, no_spark: bool) -> Chosen:
    if no_spark:
        return Chosen(ConsumerPipeline())
    if reason := why_no_spark():
        return Chosen(ConsumerPipeline(), notice=f"{reason} {INSTEAD}")
    from penstock.demo.spark_job import SparkPipeline

    return Chosen(SparkPipeline(data), has_tables=True)


def why_no_spark() -> str:
    """In one line, what is missing and what to do about it; empty if Spark can run."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        return f"Spark cannot run: no {', '.join(missing)} here. To install: {install_command('spark')}"
    from penstock.spark.java import JavaNotFound, find_java

    try:
        find_java()
    except JavaNotFound as error:
        return f"{error}."
    return ""
