"""`read_table`: Delta's file list through Spark's own Parquet reader.

The log says which files there are, which columns they have and what their partitions are; Spark reads the files as it
reads any Parquet: vectorised, with filters and columns pushed down. Where the directories are named after the partition
values, as this package, Spark and deltalake all do, Spark takes the values from there and leaves out directories that a
query does not ask for. Elsewhere the values come from the log, one read for each partition.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.pipeline.lake.errors import LakeError
from penstock.pipeline.lake.handles import has_deletion_vectors, open_table, partitions_of, protocol_of, schema_of
from penstock.pipeline.lake.layout import values_in_directory
from penstock.pipeline.lake.listing import TableFile, files_of
from penstock.pipeline.lake.locations import Location, locate
from penstock.pipeline.lake.protocol import check_partitions, check_readable
from penstock.pipeline.lake.schemas import schema_as_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

READS_MAX = 500
"""How many partitions are read one by one, where directories do not tell their values. Each is a part of the plan."""

NO_GLOBBING = {"__globPaths__": "false"}
"""The names of files are names; `[` and `*` in them mean nothing."""


def read_table(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    version: int | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """The table as it is now, or as it was at a version.

    The result stays at that version, as long as vacuum leaves its files.
    """
    from pyspark.sql.types import StructType

    location = locate(path, storage_options)
    table = open_table(location, version)
    check_readable(protocol_of(table), table.metadata().configuration, has_deletion_vectors=has_deletion_vectors(table))
    partition_by = partitions_of(table)
    check_partitions(schema_of(table), partition_by)
    schema = StructType.fromJson(schema_as_json(schema_of(table)))
    files = files_of(table)
    if not files:
        return spark.createDataFrame([], schema)
    if all(_tells_values(file, partition_by) for file in files):
        frame = _read(spark, location, files, schema)
    else:
        frame = _read_by_partition(spark, location, files, schema, partition_by)
    return frame.select(*(frame[_quoted(name)] for name in schema.names))


def _read(spark: SparkSession, location: Location, files: Sequence[TableFile], schema: StructType) -> DataFrame:
    return (
        spark.read.schema(schema)
        .options(**NO_GLOBBING, basePath=location.spark_path(""))
        .parquet(*(_path(location, file) for file in files))
    )


def _read_by_partition(
    spark: SparkSession,
    location: Location,
    files: Sequence[TableFile],
    schema: StructType,
    partition_by: tuple[str, ...],
) -> DataFrame:
    from pyspark.sql import functions
    from pyspark.sql.types import StructType

    groups: dict[tuple[str | None, ...], list[TableFile]] = {}
    for file in files:
        groups.setdefault(file.partition, []).append(file)
    if len(groups) > READS_MAX:
        raise LakeError(
            f"the table at {location.uri} has {len(groups)} partitions in directories that do not tell their values",
            f"compact it (penstock tables compact), which names them properly; up to {READS_MAX} are read as they are",
        )
    stored = StructType([field for field in schema.fields if field.name not in partition_by])
    whole: DataFrame | None = None
    for values, members in groups.items():
        frame = (
            spark.read.schema(stored)
            .options(**NO_GLOBBING, recursiveFileLookup="true")  # directories mean nothing here
            .parquet(*(_path(location, file) for file in members))
        )
        for name, value in zip(partition_by, values, strict=True):
            frame = frame.withColumn(name, functions.lit(value).cast(schema[name].dataType))
        whole = frame if whole is None else whole.unionByName(frame)
    assert whole is not None
    return whole


def _path(location: Location, file: TableFile) -> str:
    if not file.is_absolute:
        return location.spark_path(file.path)
    return f"file://{file.path}" if file.path.startswith("/") else file.path


def _tells_values(file: TableFile, partition_by: tuple[str, ...]) -> bool:
    return not file.is_absolute and values_in_directory(partition_by, file.directory) == file.partition


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
