"""Functions over Arrow arrays for Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.spark.worker_process import settle

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column
    from pyspark.sql.types import DataType


def array_function(function: Callable[[pa.Array], pa.Array], returns: DataType | str, column: Column) -> Column:
    """A column made from another one, an array at a time; `function` must be picklable."""
    import pyarrow
    from pyspark.sql.pandas.functions import arrow_udf

    def apply(values):  # type: ignore[no-untyped-def]
        made = function(values)
        settle()
        return made

    # Spark reads what kind of function it is from its annotations, which have to be the types and not their names.
    apply.__annotations__ = {"values": pyarrow.Array, "return": pyarrow.Array}
    made: Column = arrow_udf(apply, returns)(column)  # type: ignore[call-overload]
    return made
