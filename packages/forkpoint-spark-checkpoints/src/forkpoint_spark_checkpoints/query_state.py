"""A Structured Streaming query's state as DataFrames, read by Spark's state data source.

A state becomes a DataFrame with flat columns for key, map key and value; a column whose name is taken is called ``name_2``.
Spark's operators and the resulting states:

    stateStoreSave                        a group's aggregation buffers: value
    dedupe, dedupeWithinWatermark         the keys: value without columns; within a watermark also event-time timers
    transformWithState…                   its variables: value, list, map; and timers
    applyInPandasWithState, flatMapGroupsWithState
                                          the group's state: value; and the timeouts: timers
    sessionWindowStateStoreSaveExec       a session's aggregation buffers: value; the session becomes part of the key
    symmetricHashJoin, globalLimit, …
                                          ``unreadable``: no counterpart
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as spark

from forkpoint.errors import ConfigError, NotFound, StorageError
from forkpoint.spark.session import settings
from forkpoint_spark_checkpoints.query_log import QueryLog

StateRole = Literal["value", "list", "map", "timers-event", "timers-processing"]

ONLY = "state"  # the name of an operator's only state, and of map_with_state's
TIMERS = "timers"
_KINDS: dict[str, StateRole] = {"ValueState": "value", "ListState": "list", "MapState": "map"}
_GROUP_STATE = ("applyInPandasWithState", "flatMapGroupsWithState", "mapGroupsWithState")
_BUFFER = "buf"  # of aggregations over Java objects, in Spark's internal format


@dataclass(frozen=True)
class QueryState:
    """A state of an operator. ``key``, ``map_key`` and ``value``: names of the frame's columns. Lists also have ``index``, timers
    ``timestamp`` (ms), and expiring entries ``ttl_expiration_ms``."""

    operator: int
    operator_name: str
    name: str
    kind: StateRole
    frame: DataFrame
    key: tuple[str, ...]
    map_key: tuple[str, ...] = ()
    value: tuple[str, ...] = ()
    expires: bool = False

    @property
    def where(self) -> str:
        return f"state {self.name!r} of Spark's operator {self.operator} ({self.operator_name})"

    @property
    def is_timers(self) -> bool:
        return self.kind.startswith("timers")

    @property
    def opaque(self) -> list[str]:
        """Value columns that only Spark can interpret."""
        fields = {field.name: field.dataType for field in self.frame.schema.fields}
        buffers = (name for name in self.value if name.partition("_")[0] == _BUFFER)
        aggregated = self.operator_name == "stateStoreSave"
        return [name for name in buffers if aggregated and isinstance(fields[name], spark.BinaryType)]


@dataclass(frozen=True)
class QueryOperator:
    """A stateful operator of the query. ``unreadable``: why its state cannot be imported; None if it can."""

    id: int
    name: str
    partitions: int
    states: tuple[QueryState, ...]
    unreadable: str | None = None


class HadoopFiles:
    """The files below a directory in any file system that Spark can reach; a ``query_log.Files``."""

    def __init__(self, session: SparkSession, root: str) -> None:
        jvm: Any = session._jvm
        self._jvm = jvm
        self._root = jvm.org.apache.hadoop.fs.Path(root)
        self._fs = self._root.getFileSystem(session._jsparkSession.sessionState().newHadoopConf())
        self.url = urlsplit(root).path if root.startswith("file:") else root

    def list(self, prefix: str = "") -> list[str]:
        directory = self._path(prefix) if prefix else self._root
        if not self._fs.exists(directory):
            return []
        base = self._fs.makeQualified(self._root).toUri().getPath().rstrip("/") + "/"
        found, files = [], self._fs.listFiles(directory, True)
        while files.hasNext():
            found.append(str(files.next().getPath().toUri().getPath()).removeprefix(base))
        return sorted(name for name in found if not name.rpartition("/")[2].startswith("."))

    def read(self, path: str) -> bytes:
        if not self._fs.exists(self._path(path)):
            raise NotFound(f"{self.url}/{path} does not exist")
        stream = self._fs.open(self._path(path))
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, path)


@contextmanager
def reading(session: SparkSession, log: QueryLog | None = None) -> Iterator[None]:
    """Configures the session to read state of any provider. Raises Spark's errors as StorageError."""
    wanted = {
        "spark.sql.streaming.stateStore.checkpointFormatVersion": str(log.state_format if log else 1),
        "spark.sql.session.timeZone": "UTC",
    }
    try:
        with settings(session, wanted):
            yield
    except (PySparkException, Py4JJavaError) as error:
        raise StorageError(
            f"Spark could not read {log.url if log else 'the checkpoint'}: {_reason(error)}. Files may have been moved (those "
            "of transformWithState hold absolute paths), or the query may be running: stop it first"
        ) from error


def _reason(error: Exception) -> str:
    text = str(error.java_exception if isinstance(error, Py4JJavaError) else error)
    causes = [line.strip() for line in text.splitlines() if line.startswith("Caused by")]
    return (causes[-1] if causes else text.partition("\n")[0])[:400]


def is_running(session: SparkSession, query: str) -> bool:
    """Whether this session runs the query. Another session's queries are unknown."""
    return any(str(active.id) == query for active in session.streams.active)


def operators(session: SparkSession, root: str, log: QueryLog) -> list[QueryOperator]:
    """The query's stateful operators by id, with their states as of the log's batch."""
    rows = session.read.format("state-metadata").option("batchId", log.batch).load(root).collect()
    found: dict[int, Any] = {}
    for row in rows:
        found.setdefault(row.operatorId, row)
    return [_operator(session, root, log, row) for _, row in sorted(found.items())]


def _operator(session: SparkSession, root: str, log: QueryLog, row: Any) -> QueryOperator:
    number, name = int(row.operatorId), str(row.operatorName)

    def load(**options: str) -> DataFrame:
        reader = session.read.format("statestore").option("operatorId", number).option("batchId", log.batch)
        return reader.options(**options).load(root)

    states: list[QueryState] = []
    unreadable = None
    if name == "stateStoreSave":
        states = [_flat(number, name, ONLY, "value", load())]
    elif name == "sessionWindowStateStoreSaveExec":
        states = [_flat(number, name, ONLY, "value", _sessions(load()))]
    elif name in ("dedupe", "dedupeWithinWatermark"):
        states = _deduplication(number, name, load())
    elif name in _GROUP_STATE:
        states = _group_state(number, name, load(), log)
    elif name.startswith("transformWithState"):
        states = [_variable(number, name, each, load) for each in _variables(row.operatorProperties)]
    else:
        unreadable = f"forkpoint has no operator for the state of {name}"
    return QueryOperator(number, name, int(row.numPartitions), tuple(states), unreadable)


def _variables(properties: str | None) -> Iterator[tuple[str, str, bool]]:
    found = json.loads(properties or "{}").get("stateVariables", [])
    for each in json.loads(found) if isinstance(found, str) else found:
        yield each["stateName"], each["stateVariableType"], bool(each["ttlEnabled"])


def _variable(number: int, operator: str, variable: tuple[str, str, bool], load: Any) -> QueryState:
    name, kind, expires = variable
    if kind == "TimerState":
        frame = load(readRegisteredTimers="true").withColumnRenamed("expiration_timestamp_ms", "timestamp")
        domain: StateRole = "timers-processing" if name.startswith("$proc") else "timers-event"
        return _flat(number, operator, TIMERS, domain, frame)
    if kind not in _KINDS:
        raise ConfigError(f"operator {number} ({operator}): its variable {name!r} has the unknown kind {kind!r}")
    frame = load(stateVarName=name, **({"flattenCollectionTypes": "false"} if kind == "ListState" else {}))
    if kind == "ListState":
        frame = frame.select("key", f.posexplode("list_value").alias("index", "value"))
    elif kind == "MapState":
        frame = frame.withColumnsRenamed({"user_map_key": "map_key", "user_map_value": "value"})
    if expires:
        frame = frame.withColumn("ttl_expiration_ms", f.col("value.ttlExpirationMs"))
        frame = frame.withColumn("value", f.col("value.value"))
    return _flat(number, operator, name, _KINDS[kind], frame, expires=expires)


def _deduplication(number: int, name: str, frame: DataFrame) -> list[QueryState]:
    seen = _flat(number, name, ONLY, "value", frame.select("key"))
    if name == "dedupe":
        return [seen]
    expiry = (f.col("value.expiresAtMicros") / 1000).cast("long")
    timers = frame.select("key", expiry.alias("timestamp"))
    return [seen, _flat(number, name, TIMERS, "timers-event", timers)]


def _sessions(frame: DataFrame) -> DataFrame:
    """Spark's keys end with the session's start. Its values begin with the key, but with the session's window in its place."""
    keys, inner = frame.schema["key"].dataType, frame.schema["value"].dataType
    assert isinstance(keys, spark.StructType)
    assert isinstance(inner, spark.StructType)
    value = f.col("value").cast(_number_fields(inner))
    fields = [(field.name, value.getField(f"c{i}")) for i, field in enumerate(inner.fields)]
    grouping, buffers = fields[: len(keys)], fields[len(keys) :]
    return frame.select(
        f.struct(*[column.alias(name) for name, column in grouping]).alias("key"),
        f.struct(*[column.alias(name) for name, column in buffers]).alias("value"),
    )


def _number_fields(of: spark.StructType) -> spark.StructType:
    """The struct with its fields renamed to c0, c1, …, because names may repeat."""
    return spark.StructType([spark.StructField(f"c{i}", field.dataType) for i, field in enumerate(of.fields)])


def _group_state(number: int, name: str, frame: DataFrame, log: QueryLog) -> list[QueryState]:
    inner = frame.schema["value"].dataType
    assert isinstance(inner, spark.StructType)
    nested = "groupState" in inner.names
    value = f.col("value.groupState") if nested else f.col("value").dropFields("timeoutTimestamp")
    states = [_flat(number, name, ONLY, "value", frame.select("key", value.alias("value")).where("value is not null"))]
    if "timeoutTimestamp" in inner.names:
        # Spark does not record a timeout's time domain; an event-time timeout needs a watermark.
        domain: StateRole = "timers-event" if log.next_watermark_ms > 0 else "timers-processing"
        timeouts = frame.select("key", f.col("value.timeoutTimestamp").alias("timestamp")).where("timestamp >= 0")
        states.append(_flat(number, name, TIMERS, domain, timeouts))
    return states


def _flat(number: int, operator: str, name: str, kind: StateRole, frame: DataFrame, *, expires: bool = False) -> QueryState:
    """The state with a column per field of its records. Selects fields by position, because buffers repeat names."""
    own = [each for each in ("index", "timestamp", "ttl_expiration_ms") if each in frame.columns]
    taken = {each.lower() for each in own}
    columns: list[Column] = [f.col(each) for each in own]
    names: dict[str, tuple[str, ...]] = {}
    for role in [role for role in ("key", "map_key", "value") if role in frame.columns]:
        inner = frame.schema[role].dataType
        if not isinstance(inner, spark.StructType):
            inner = spark.StructType([spark.StructField(role, inner)])
            frame = frame.withColumn(role, f.struct(f.col(role).alias(role)))
        fresh = tuple(_free_name(field.name, taken) for field in inner.fields)
        frame = frame.withColumn(role, f.col(role).cast(_number_fields(inner)))
        columns += [f.col(f"{role}.c{i}").alias(each) for i, each in enumerate(fresh)]
        names[role] = fresh
    return QueryState(number, operator, name, kind, frame.select(*columns), expires=expires, **names)


def _free_name(name: str, taken: set[str]) -> str:
    number, found = 1, name
    while found.lower() in taken:
        number += 1
        found = f"{name}_{number}"
    taken.add(found.lower())
    return found


def select(state: QueryState, expressions: Sequence[str]) -> DataFrame:
    """Evaluates SQL expressions over a state's columns. Raises ConfigError for invalid expressions."""
    try:
        return state.frame.selectExpr(*expressions)
    except (AnalysisException, ParseException) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(f"{state.where} has the columns {', '.join(state.frame.columns)}: {reason}") from error


def nulls(frame: DataFrame, names: Sequence[str]) -> tuple[int, frozenset[str]]:
    """The number of rows, and the paths of the columns, fields, elements and map values that have nulls."""
    found: dict[str, Column] = {}
    for field in frame.schema.fields:
        if field.name in names:
            found |= _nulls(f.col(f"`{field.name}`"), field.dataType, field.name)
    checks = [f.coalesce(f.max(check), f.lit(False)).alias(f"n{i}") for i, check in enumerate(found.values())]
    row = frame.agg(f.count(f.lit(1)).alias("rows"), *checks).collect()[0]
    return int(row["rows"]), frozenset(path for i, path in enumerate(found) if row[f"n{i}"])


def _nulls(column: Column, of: spark.DataType, path: str) -> dict[str, Column]:
    """Whether there is a null, by path of a column."""
    found = {path: column.isNull()}
    match of:
        case spark.StructType():
            for field in of.fields:
                found |= _nulls(column.getField(field.name), field.dataType, f"{path}.{field.name}")
        case spark.ArrayType():
            found |= _nulls_within(column, of.elementType, f"{path}[]")
        case spark.MapType():
            found |= _nulls_within(f.map_values(column), of.valueType, f"{path}[]")
    return found


def _nulls_within(array: Column, of: spark.DataType, path: str) -> dict[str, Column]:
    def check(wanted: str) -> Callable[[Column], Column]:
        return lambda element: _nulls(element, of, path)[wanted]

    paths = _nulls(f.col("x"), of, path)
    return {each: f.coalesce(f.exists(array, check(each)), f.lit(False)) for each in paths}
