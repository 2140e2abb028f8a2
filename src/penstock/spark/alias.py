"""`register`: the source in a session by hand, and under Spark's own name for it.

Spark finds `penstock` by itself, by importing every module named `pyspark_*`. One of them that fails to import makes
Spark forget all of them, with a warning in a log that few read; a session in which the source was registered does not
care. That is why `build_session` registers it.

Under the name `kafka`, Python alone cannot register: for that name Spark looks for its own connector and then raises
("Failed to find data source: kafka. Please deploy the application as per the deployment section …"), and registering
it is refused for the same reason. One class in a jar of some hundred bytes changes that (`alias_jar`): it comes to the
driver's class loader, where `spark.jars` would put it, and the source goes to the session's table of sources by the
door behind that check. It is in nobody's way: where Spark's connector is present, Spark finds that one first, and
`register` leaves the session alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.spark.alias_jar import AliasUnavailable, alias_jar
from penstock.spark.source import PenstockDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

CONNECTOR_CLASS = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
ALIAS_CLASS = "kafka.DefaultSource"


class KafkaAlias(PenstockDataSource):
    """The same source and sink under the name `kafka`. At the top of a module, because workers import it by name."""

    @classmethod
    def name(cls) -> str:
        return "kafka"


def register(spark: SparkSession, *, kafka_alias: bool = False) -> bool:
    """Registers the format `penstock` in a session, and with `kafka_alias` the format `kafka` as well.

    True if `kafka` is Penstock's from now on; False if it was not asked for, or Spark's own connector is there.
    AliasUnavailable where there is no jar for it.
    """
    spark.dataSource.register(PenstockDataSource)
    if not kafka_alias or has_kafka_connector(spark):
        return False
    _load_alias_class(spark)
    _register_unchecked(spark, KafkaAlias)
    return True


def has_kafka_connector(spark: SparkSession) -> bool:
    """Whether the session's JVM has Spark's own Kafka connector."""
    return _is_loadable(spark, CONNECTOR_CLASS)


def _load_alias_class(spark: SparkSession) -> None:
    if _is_loadable(spark, ALIAS_CLASS):
        return
    jar = alias_jar()
    jvm = _jvm_of(spark)
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    # Spark's own kind of loader, to which spark-submit adds what `spark.jars` names. All threads of the driver have it.
    if loader.getClass().getName() == "org.apache.spark.util.MutableURLClassLoader":
        loader.addURL(jvm.java.io.File(str(jar)).toURI().toURL())
    if not _is_loadable(spark, ALIAS_CLASS):
        raise AliasUnavailable(
            f"the format `kafka` cannot be added to a session that runs here: start it with spark.jars={jar}"
        )


def _register_unchecked(spark: SparkSession, source: type[DataSource]) -> None:
    """What `spark.dataSource.register` does, without its question whether Spark knows the name."""
    from pyspark.sql.udf import _wrap_function

    wrapped = _wrap_function(spark.sparkContext, source)
    python = _jvm_of(spark).org.apache.spark.sql.execution.datasources.v2.python
    manager = spark._jsparkSession.sessionState().dataSourceManager()
    manager.registerDataSource(source.name(), python.UserDefinedPythonDataSource(wrapped))


def _is_loadable(spark: SparkSession, name: str) -> bool:
    return bool(_jvm_of(spark).org.apache.spark.util.Utils.classIsLoadable(name))


def _jvm_of(spark: SparkSession) -> Any:
    jvm = getattr(spark, "_jvm", None)
    if jvm is None:
        raise AliasUnavailable(
            "the format `kafka` cannot be added through Spark Connect: its server has to be started with "
            f"spark.jars={alias_jar()}, or with Spark's own Kafka connector"
        )
    return jvm
