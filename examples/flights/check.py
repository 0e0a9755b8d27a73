"""The expected results of the streaming job, computed by one batch query in Spark SQL over the whole stream.

    python examples/flights/check.py STREAM                                        version 1 from start to end
    python examples/flights/check.py STREAM --switch 120000 --tolerance 15         version 2 from row 120,000 on
    python examples/flights/check.py STREAM --counts DIR... --alarms DIR...        compare the job's output with it
    python examples/flights/check.py STREAM --fork-counts DIR... --fork-alarms ... compare a fork of version 1, too

It shares no code with the job. The definition:

* A *departure* is a flight with a dep_time; cancelled flights only advance time. A *line* is a (carrier, origin). The
  departures of a line are in the order of the stream: time, flight, tailnum, dest.
* *Counts*: with each departure, the number of departures of its (origin, carrier) so far. From version 2 on, of its
  (origin, carrier, band), where the band is the scheduled local hour's: night (0 to 5), morning (6 to 11),
  afternoon (12 to 17) or evening; each band starts at its first departure after the switch, and earlier departures
  stay in the band "unsplit".
* A line *runs late* at a departure when it has had 20 departures and the last 20 were on average more than 60 minutes
  behind schedule (their dep_delay; version 2: more than 60 minutes and the tolerance).
* An *alarm* is raised, with the departure's time, at each departure at which the line runs late and at the one before
  did not (or there was none).
* An *escalation* is raised 6 hours of event time after an alarm, with that time, unless the line has had a departure
  after the alarm, up to and including that time, at which it did not run late.
* The *switch* is the position of the first row that version 2 sees. It takes over the delays, who runs late, and the
  escalations that are due.

The output to compare: Parquet with (origin, carrier, [band,] departures), a row for each departure, and (kind, carrier,
origin, time) with the kinds "alarm" and "escalation". Each row must be there once. Version 2's counts have a column
total as well, which continues version 1's departures: together, they are the counts without bands.

DIR@EPOCH stands for the files of the epochs up to that one: the part before a fork from a savepoint of that epoch.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

COUNTS = ["origin", "carrier", "band", "departures"]
TOTALS = ["origin", "carrier", "total"]
ALARMS = ["kind", "carrier", "origin", "time"]

DEPARTURES = """
    SELECT *,
           CASE WHEN position < {switch} THEN 'unsplit'
                WHEN hour < 6 THEN 'night'
                WHEN hour < 12 THEN 'morning'
                WHEN hour < 18 THEN 'afternoon'
                ELSE 'evening' END AS band,
           CASE WHEN position < {switch} THEN 60 ELSE 60 + {tolerance} END AS threshold
    FROM flights
    WHERE dep_time IS NOT NULL
"""

COUNTS_QUERY = """
    SELECT origin, carrier, band, COUNT(*) AS departures FROM departures GROUP BY origin, carrier, band
"""

ALARMS_QUERY = """
    WITH last_20 AS (
        SELECT *, COUNT(*) OVER latest = 20 AND SUM(dep_delay) OVER latest > 20 * threshold AS late
        FROM departures
        WINDOW latest AS (PARTITION BY carrier, origin ORDER BY time, flight, tailnum, dest
                          ROWS BETWEEN 19 PRECEDING AND CURRENT ROW)
    ), neighbours AS (
        SELECT *,
               LAG(late, 1, false) OVER line AS was_late,
               MIN(CASE WHEN NOT late THEN time END) OVER what_follows AS recovered
        FROM last_20
        WINDOW line AS (PARTITION BY carrier, origin ORDER BY time, flight, tailnum, dest),
               -- Backwards, for Spark would add up a frame that is open to the future anew for every row.
               what_follows AS (PARTITION BY carrier, origin ORDER BY time DESC, flight DESC, tailnum DESC, dest DESC
                                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
    ), alarms AS (
        SELECT carrier, origin, time, time + 6 * 3600 * 1000 AS due, recovered
        FROM neighbours
        WHERE late AND NOT was_late
    )
    SELECT 'alarm' AS kind, carrier, origin, time FROM alarms
    UNION ALL
    SELECT 'escalation', carrier, origin, due FROM alarms WHERE recovered IS NULL OR recovered > due
"""


def session() -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("flights-check")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def expected(spark: SparkSession, stream: Path, switch: int | None, tolerance: int) -> tuple[DataFrame, DataFrame]:
    """(COUNTS at the end, ALARMS). Without a switch, version 1 saw everything."""
    files = sorted(stream.glob("flights-*"))
    if not files:
        raise SystemExit(f"no flights in {stream}; make them with: python examples/flights/prepare.py {stream}")
    flights = spark.read.format(files[0].suffix[1:]).load([str(path) for path in files])
    flights.createOrReplaceTempView("flights")
    never = 2**62
    departures = spark.sql(DEPARTURES.format(switch=never if switch is None else switch, tolerance=tolerance))
    departures.createOrReplaceTempView("departures")
    return spark.sql(COUNTS_QUERY), spark.sql(ALARMS_QUERY)


def files_of(output: str) -> list[str]:
    """The files of DIR or DIR@EPOCH."""
    directory, _, epoch = output.partition("@")
    files = sorted(Path(directory).glob("part-*.parquet"))
    if not files:
        raise SystemExit(f"no output in {directory}")
    return [str(file) for file in files if not epoch or int(file.name.split("-")[1]) <= int(epoch)]


def read_output(spark: SparkSession, outputs: list[str], columns: list[str]) -> DataFrame:
    """The rows of all outputs; those of version 1 have no band, and their total is the number of departures."""
    frames = []
    for output in outputs:
        if not (files := files_of(output)):
            continue  # a fork from before the first output
        frame = spark.read.parquet(*files)
        if "band" not in frame.columns:
            frame = frame.withColumn("band", sf.lit("unsplit"))
        if "departures" in frame.columns and "total" not in frame.columns:
            frame = frame.withColumn("total", frame["departures"])
        frames.append(frame.select(columns))
    united = frames[0]
    for frame in frames[1:]:
        united = united.unionByName(frame)
    return united


def each_departure(counts: DataFrame, number: str = "departures") -> DataFrame:
    """From the final counts, the rows that a job emits until then: 1, 2, and so on."""
    return counts.withColumn(number, sf.explode(sf.sequence(sf.lit(1).cast("bigint"), number)))


def without_bands(counts: DataFrame) -> DataFrame:
    return counts.groupBy("origin", "carrier").agg(sf.sum("departures").alias("total"))


def differences(found: DataFrame, wanted: DataFrame) -> DataFrame:
    """Rows that `found` lacks or has too often, with the difference in number."""
    tallies = wanted.withColumn("surplus", sf.lit(-1)).unionByName(found.withColumn("surplus", sf.lit(1)))
    return tallies.groupBy(wanted.columns).agg(sf.sum("surplus").alias("surplus")).where("surplus <> 0")


def agrees(what: str, found: DataFrame, wanted: DataFrame) -> bool:
    wrong = differences(found, wanted).orderBy(*wanted.columns).cache()
    number: int = wrong.count()
    print(f"{what}: {found.count()} rows, {wanted.count()} expected, {number} different")
    if number:
        print("the first of them; surplus is above 0 where a row is there too often, below 0 where it is missing")
        wrong.show(20, truncate=False)
    return number == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stream", type=Path, help="the directory that prepare.py wrote")
    parser.add_argument("--switch", type=int, metavar="POSITION", help="of the first row that version 2 sees")
    parser.add_argument("--tolerance", type=int, default=15, metavar="MINUTES", help="of version 2 (default: 15)")
    for name, whose in (("", "the job's"), ("fork-", "version 1's up to the fork and the fork's")):
        for what in ("counts", "alarms"):
            parser.add_argument(f"--{name}{what}", nargs="+", metavar="DIR", help=f"{whose} {what}")
    arguments = parser.parse_args()

    spark = session()
    counts, alarms = expected(spark, arguments.stream, arguments.switch, arguments.tolerance)
    counts, alarms = counts.cache(), alarms.cache()
    verdicts = []
    if arguments.counts:
        found = read_output(spark, arguments.counts, COUNTS)
        verdicts.append(agrees("counts", found, each_departure(counts)))
        found = read_output(spark, arguments.counts, TOTALS)
        verdicts.append(agrees("counts, all bands", found, each_departure(without_bands(counts), "total")))
    if arguments.alarms:
        verdicts.append(agrees("alarms", read_output(spark, arguments.alarms, ALARMS), alarms.select(ALARMS)))
    if arguments.fork_counts or arguments.fork_alarms:
        fork_counts, fork_alarms = expected(spark, arguments.stream, None, 0)
        if arguments.fork_counts:
            found = read_output(spark, arguments.fork_counts, COUNTS)
            verdicts.append(agrees("the fork's counts", found, each_departure(fork_counts)))
        if arguments.fork_alarms:
            found = read_output(spark, arguments.fork_alarms, ALARMS)
            verdicts.append(agrees("the fork's alarms", found, fork_alarms.select(ALARMS)))
    if not verdicts:
        counts.groupBy("band").agg(sf.count("*").alias("rows"), sf.sum("departures").alias("departures")).show()
        alarms.groupBy("kind").agg(sf.count("*").alias("rows"), sf.min("time"), sf.max("time")).show()
    spark.stop()
    return 0 if all(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
