package org.apache.spark.sql.execution.datasources.v2.python;

/** Spark's class in name only, so that the alias compiles without Spark's jars. It is not part of the alias's jar. */
public class PythonDataSourceV2 {
}
