"""The SparkSession that forkpoint runs on: the active session, or a new one with settings for short epochs.

The user's settings win, whether from the program, the command line, spark-submit or spark-defaults.conf. forkpoint sets
those that its streaming query needs (`QUERY_SETTINGS`) only while the query starts, when Spark clones the session.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from glob import glob
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from forkpoint import logs
from forkpoint.errors import ConfigError
from forkpoint.spark.shipping.provisions import NOTHING, Provisions

EPOCH_POOL = "forkpoint-epochs"
BACKGROUND_POOL = "forkpoint-background"

_HERE = Path(__file__).resolve().parent
_PROGRESS = "spark.ui.showConsoleProgress"
_PANDAS_WARNING = "PySpark does not yet fully support pandas"

# Spark's default manager of checkpoint files uses FileContext, which forks processes without the native Hadoop library
# (85 ms per micro-batch). A query's checkpoint directory is temporary and does not need its atomic rename.
QUERY_SETTINGS: Mapping[str, str] = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.numRecentProgressUpdates": "4",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    # No .crc files, and no process forked to set a file's mode. Only for forkpoint's query, because Spark's RocksDB state stores
    # need Hadoop's default local file system. So it is not cached, because all queries share the cache.
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
}

DEFAULT_SETTINGS: Mapping[str, str] = {
    **{name: value for name, value in QUERY_SETTINGS.items() if name.startswith("spark.")},
    "spark.executorEnv.PYTHONWARNINGS": f"ignore:{_PANDAS_WARNING}:FutureWarning",
    "spark.log.level": "WARN",
    # Loopback TCP would add 40 ms to each Python stage.
    "spark.python.unix.domain.socket.enabled": "true",
    # The temporary directory of a YARN container has a longer path than a socket can have.
    "spark.python.unix.domain.socket.dir": "/tmp",
    "spark.python.worker.reuse": "true",
    # How long a cancelled task may occupy a core before its worker is killed.
    "spark.python.task.killTimeout": "500ms",
    "spark.scheduler.allocation.file": (_HERE / "pools.xml").as_uri(),
    "spark.scheduler.mode": "FAIR",
    # Subtasks run on the host of their local store (see exchange), not of most of an epoch's input.
    "spark.shuffle.reduceLocality.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    _PROGRESS: "false",
}


# For a JVM that starts tasks and forwards bytes, but computes nothing. The optimizing compiler would occupy a fifth of a small
# machine's processors for the first minute without making the code faster.
FORWARDING_JVM = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=128m"


def get_session(
    options: Mapping[str, str] | None = None, provisions: Provisions = NOTHING, jvm_options: str = ""
) -> SparkSession:
    """The active SparkSession, or else a new one.

    `options` are Spark settings by name ("spark.master": "local[4]"). They apply only to a new session, and override those of
    spark-submit and spark-defaults.conf, which override forkpoint's defaults. The master comes from the options, the
    environment's SPARK_MASTER, spark-submit or spark-defaults.conf, or is local[*], in this order. Executors get `provisions`
    from this process. `jvm_options` apply to a new driver's JVM; spark.driver.extraJavaOptions overrides them. Raises ConfigError
    for Spark Connect, if no Java is found, and if the active session's executors lack the provisions.
    """
    if os.environ.get("SPARK_REMOTE") or (options or {}).get("spark.remote"):
        raise ConfigError("SPARK_REMOTE selects Spark Connect, which cannot run forkpoint's jobs; unset it and set a master")
    # PySpark imports pandas without using it here, so its warning is irrelevant.
    warnings.filterwarnings("ignore", message=_PANDAS_WARNING, category=FutureWarning)
    active = SparkSession.getActiveSession()
    if active is not None:
        _refuse_connect(active)
        provisions.check(active.sparkContext.getConf())
        return active
    given = dict(options or {})
    if given.get("spark.submit.deployMode") == "cluster":
        raise ConfigError(
            "this process is the driver, so it cannot run in the cluster. To start one there: spark-submit --deploy-mode cluster "
            "APP; `forkpoint list`, `stop` and all other commands work with its job from every host"
        )
    if "spark.master" not in given and os.environ.get("SPARK_MASTER"):
        given["spark.master"] = os.environ["SPARK_MASTER"]
    _set_java_home()
    logging = f"-Dlog4j2.configurationFile={(_HERE / 'log4j2.properties').as_uri()} -Dforkpoint.log.format={logs.chosen()}"
    # spark-submit reads these variables last.
    jvm_defaults = {"SPARK_DRIVER_MEMORY": "2g", "SPARK_SUBMIT_OPTS": f"{logging} {jvm_options}"}
    try:
        with _environment(jvm_defaults):
            session = _start(given, provisions)
    except PySparkRuntimeError as error:
        if error.getCondition() not in ("JAVA_GATEWAY_EXITED", "JAVA_HOME_NOT_SET"):
            raise
        raise ConfigError(
            f"Spark's JVM ended while it started; see its output above. JAVA_HOME is {os.environ.get('JAVA_HOME')!r}: Spark "
            "needs Java 17 or newer there, and valid settings (spark.driver.memory, spark.driver.extraJavaOptions)"
        ) from error
    _refuse_connect(session)
    # A session is only active on the thread that created it.
    SparkSession._get_j_spark_session_class(session._jvm).setActiveSession(session._jsparkSession)
    return session


@contextmanager
def _environment(defaults: Mapping[str, str]) -> Iterator[None]:
    """Set these variables, unless set already, within the block."""
    added = [name for name in defaults if name not in os.environ]
    os.environ.update({name: defaults[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def java_program() -> Path:
    """The Java that runs Spark's JVM: from JAVA_HOME, even if missing there, or the PATH, or the newest in the usual directories.
    Raises ConfigError if there is none."""
    if home := os.environ.get("JAVA_HOME"):
        return Path(home) / "bin" / "java"
    found = shutil.which("java")
    return find_java_home() / "bin" / "java" if found is None else Path(found)


def _set_java_home() -> None:
    """Make sure that Spark finds Java. Raises ConfigError if JAVA_HOME is wrong, or none is found."""
    home, program = os.environ.get("JAVA_HOME"), java_program()
    if home and not os.access(program, os.X_OK):
        raise ConfigError(
            f"JAVA_HOME is {home!r}, but there is no {program} to run; set it to the directory of "
            "a JDK 17 or newer, or unset it so that forkpoint looks for one"
        )
    if not home and shutil.which("java") is None:
        os.environ["JAVA_HOME"] = str(program.parents[1])


def _start(given: Mapping[str, str], provisions: Provisions) -> SparkSession:
    """Starts Spark, unless it runs, on a separate thread, so that Ctrl-C interrupts the wait but not PySpark.

    On the main thread PySpark would install its own handler of Ctrl-C, which fails in the middle of a call to the JVM. The
    JVM ends with this process, when its input closes, but only after it has written its port to a directory that an interrupted
    PySpark removes. Such a JVM failed half-way and never ended.
    """
    started: Future[SparkSession] = Future()

    def start() -> None:
        try:
            # These become arguments of the JVM, visible to every user of this machine.
            visible = {name: value for name, value in given.items() if not name.startswith("spark.executorEnv.")}
            # The JVM starts as PySpark's shell, which would show a bar for each stage.
            visible.setdefault(_PROGRESS, DEFAULT_SETTINGS[_PROGRESS])
            SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(list(visible.items())))
            conf = SparkConf().setAll(list(given.items()))  # now with the settings of spark-submit and spark-defaults.conf
            if conf.get("spark.app.name", "pyspark-shell") == "pyspark-shell":  # PySpark's default
                conf.setAppName("forkpoint")
            for name, value in {"spark.master": "local[*]", **DEFAULT_SETTINGS}.items():
                conf.setIfMissing(name, value)
            provisions.add_to(conf)
            # Only spark-submit reads spark.pyspark.python. Workers would otherwise run the system's python3, without packages.
            os.environ["PYSPARK_PYTHON"] = conf.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or sys.executable
            os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
            started.set_result(SparkSession.builder.config(conf=conf).getOrCreate())
        except BaseException as error:
            started.set_exception(error)

    threading.Thread(target=start, name="forkpoint-spark", daemon=True).start()
    return started.result()


def find_java_home(patterns: Sequence[str] = ()) -> Path:
    """The newest Java home in the usual directories (glob patterns). Raises ConfigError if there is none."""
    patterns = patterns or (
        "/usr/lib/jvm/*",
        "/opt/java/*",
        "/opt/homebrew/opt/openjdk*",
        "/Library/Java/JavaVirtualMachines/*/Contents/Home",
        str(Path.home() / ".sdkman/candidates/java/current"),
        str(Path.home() / ".jdk/*"),
    )
    for pattern in patterns:
        homes = sorted(home for home in map(Path, glob(pattern)) if (home / "bin" / "java").exists())
        if homes:
            return homes[-1]
    raise ConfigError("Spark needs Java 17 or newer and none was found; install a JDK or set JAVA_HOME")


@contextmanager
def settings(session: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Change the session's settings within the block, then restore them."""
    before = {name: session.conf.get(name, None) for name in wanted}
    try:
        for name, value in wanted.items():
            session.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            if old is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, old)


def _refuse_connect(session: SparkSession) -> None:
    if not hasattr(session, "_jsparkSession"):
        raise ConfigError("the active SparkSession belongs to Spark Connect; forkpoint needs a classic one, with a master")
