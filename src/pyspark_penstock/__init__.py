"""What makes `.format("penstock")` work without registration.

Spark imports every top-level module named `pyspark_*` in its Python and takes the class `DefaultSource` of each as a
data source. One module that fails to import takes all of them down with it, so this one never does: where something is
missing it has no `DefaultSource`. Spark then says that it does not know the format, and nothing more; `penstock doctor`
imports the source itself and says why.
"""

from contextlib import suppress

with suppress(Exception):
    from penstock.spark.source import PenstockDataSource as DefaultSource

__all__ = ["DefaultSource"]
