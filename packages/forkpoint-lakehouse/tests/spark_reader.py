"""Prints the rows of tables, as Spark reads them: run by the Python of a Spark for which Delta and Iceberg can be had.

    python spark_reader.py DIRECTORY_OF_JARS FORMAT DIRECTORY …

A line of JSON for each table, with its rows; values are as ``str`` gives them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
CATALOG = "spark.sql.catalog.default"  # pyiceberg's name of it, which is in its database


def started(libraries: Path) -> Any:
    jars = ",".join(map(str, libraries.glob("*.jar")))
    return SparkSession.builder.master("local[1]").config(map={**SETTINGS, "spark.jars": jars}).getOrCreate()


def iceberg(spark: Any, place: str) -> Any:
    """The table in the catalog of a directory, in a session of its own."""
    session = spark.newSession()
    settings = {
        CATALOG: "org.apache.iceberg.spark.SparkCatalog",
        f"{CATALOG}.type": "jdbc",
        f"{CATALOG}.jdbc.schema-version": "V1",
        f"{CATALOG}.uri": f"jdbc:sqlite:{place}/catalog.db",
        f"{CATALOG}.warehouse": f"file://{place}",
    }
    for name, value in settings.items():
        session.conf.set(name, value)
    return session.table("default.ns.counts")


def main() -> None:
    libraries, kind, *places = sys.argv[1:]
    spark = started(Path(libraries))
    for place in places:
        frame = spark.read.format("delta").load(place) if kind == "delta" else iceberg(spark, place)
        print(json.dumps([row.asDict(recursive=True) for row in frame.collect()], default=str), flush=True)


if __name__ == "__main__":
    main()
