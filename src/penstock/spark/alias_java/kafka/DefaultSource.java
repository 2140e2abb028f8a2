package kafka;

import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;

/**
 * What Spark finds for {@code format("kafka")} where its own Kafka connector is absent: for a format X that no service
 * is registered for it loads a class X, then a class X.DefaultSource. All the rest is Spark's: PythonDataSourceV2 looks
 * up the data source that was registered from Python under the same name.
 */
public final class DefaultSource extends PythonDataSourceV2 {
}
