"""What PyFlink's own tests need of PyFlink's test utilities and of the JVM, in terms of forkpoint."""

from __future__ import annotations

import datetime
import json
import os
import shutil
import sys
import tempfile
import unittest
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import avro.schema
import numpy as np
import py4j.java_gateway
import py4j.protocol
from avro.datafile import DataFileWriter
from avro.io import DatumWriter

import forkpoint as fp
import forkpoint.pyflink
import forkpoint.pyflink.tables
from forkpoint.api.streams.outputs import SinkMixin
from forkpoint.connectors.collection import CollectionSource
from forkpoint.functions import TimestampAssigner
from forkpoint.pyflink.environment import StreamExecutionEnvironment
from forkpoint.pyflink.formats import AvroSchema
from forkpoint.relational.changes import row_type
from forkpoint.table.connectors.printing import line_of, short_floats
from forkpoint.table.connectors.registry import CONNECTORS, Connector
from forkpoint.types import TypeInformation


class Jvm:
    """Any path of Java names, called or not: good for being passed on, and nothing else."""

    def __init__(self, path: str = "") -> None:
        self._path = path

    def __getattr__(self, name: str) -> Jvm:
        if name.startswith("__"):
            raise AttributeError(name)
        return Jvm(f"{self._path}.{name}")

    def __call__(self, *arguments: Any) -> Any:
        known = next((make for name, make in CLASSES.items() if self._path.endswith(name)), None)
        if known is not None:
            return known(*arguments)
        return Jvm(f"{self._path}({', '.join(a._path for a in arguments if isinstance(a, Jvm))})")


class JavaList(list):
    add = list.append


class JavaMap(dict):
    put = dict.__setitem__


class JavaRow(list):
    """A row of Java's, for the formats of messages."""

    def __init__(self, arity: int) -> None:
        super().__init__([None] * arity)

    setField = list.__setitem__  # noqa: N815
    equals = list.__eq__


class JavaSchema:
    """A part of an Avro schema."""

    def __init__(self, of: Any) -> None:
        self.of = of

    def getField(self, name: str) -> JavaSchema:  # noqa: N802
        return JavaSchema(next(field for field in self.of["fields"] if field["name"] == name))

    def schema(self) -> JavaSchema:
        return JavaSchema(self.of["type"])

    def getElementType(self) -> str:  # noqa: N802
        return json.dumps(self.of["items"])


class AvroFileWriter:
    """Writes a file with the library of Avro's own project."""

    def create(self, schema: JavaSchema, file: str) -> None:
        opened = Path(file).open("wb")  # noqa: SIM115  # the writer closes it
        self._writer = DataFileWriter(opened, DatumWriter(), avro.schema.parse(json.dumps(schema.of)))

    def append(self, record: Any) -> None:
        self._writer.append(record)

    def close(self) -> None:
        self._writer.close()


class JavaFormat:
    """A format of messages as the tests call it: on rows of Java's."""

    def __init__(self, of: Any) -> None:
        self._of = of

    def open(self, context: Any) -> None: ...

    def serialize(self, row: JavaRow) -> bytes:
        return self._of.serialize(_with(fp.Row, row))

    def deserialize(self, message: bytes) -> list[Any]:
        return _with(lambda *values: list(values), self._of.deserialize(message))


def _with(make: Any, row: Any) -> Any:
    """A row, however nested, as another kind of row."""
    return make(*(_with(make, each) if isinstance(each, JavaRow | fp.Row) else each for each in row))


# By the end of their path.
CLASSES = {
    "java.io.File": str,
    "java.util.ArrayList": JavaList,
    "java.util.HashMap": JavaMap,
    "types.Row": JavaRow,
    "GenericData.Record": lambda schema: JavaMap(),
    "GenericData.EnumSymbol": lambda schema, symbol: symbol,
    "DataFileWriter": lambda of: AvroFileWriter(),
}


class JavaConfiguration:
    """The environment's configuration as Java has it."""

    def __init__(self, env: fp.StreamExecutionEnvironment) -> None:
        self._env = env

    def setString(self, key: str, value: str) -> None:  # noqa: N802
        self._env.configure({key: value})

    def getString(self, key: str, default: Any = None) -> Any:  # noqa: N802
        return self._env.options.accepted.get(key, default)


class Configuration(fp.Configuration):
    def __init__(self, other: Any = None, j_configuration: Any = None) -> None:
        super().__init__(other)
        if j_configuration is not None:
            self.values.update(j_configuration._env.options.accepted)


class WatermarkStrategy(fp.WatermarkStrategy):
    """The tests make one in Java, whose generator emits a watermark after each element; forkpoint's do anyway."""

    def __new__(cls, java: Any) -> Any:
        return fp.WatermarkStrategy.for_monotonous_timestamps()

    def __init__(self, java: Any) -> None: ...


def java_text(value: Any, type: TypeInformation | None = None, *, of_table: bool = False) -> str:
    """An element as Java's ``toString`` has it. ``of_table``: whether the stream is a table's, whose times are LocalDateTimes."""
    if value is None:
        return "null"
    if of_table:
        return line_of(short_floats(value, type), weighted=False)
    kinds = {part.kind for part in parts(type)} if type is not None else set()
    if isinstance(value, float):
        return str(np.float32(value)) if "float" in kinds else str(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, fp.Row):
        return f"{value.get_row_kind()}[{', '.join(texts(value, type))}]"
    if isinstance(value, tuple):
        if type is not None and getattr(type, "flavor", "") == "row":
            return f"+I[{', '.join(texts(value, type))}]"
        return f"({','.join(texts(value, type))})"
    if isinstance(value, bytes | bytearray):
        return f"[{', '.join(map(str, value))}]"
    if isinstance(value, list):
        return f"[{', '.join(java_text(each, type) for each in value)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{java_text(k)}={java_text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, datetime.datetime):
        return str(value).rstrip("0") if value.microsecond else f"{value}.0"
    if isinstance(value, datetime.time):
        return value.strftime("%H:%M:%S")
    return str(value)


def texts(record: Any, type: TypeInformation | None) -> list[str]:
    types = [field.type for field in type.fields] if type is not None and type.fields is not None else [None] * len(record)
    return list(map(java_text, record, types))


def parts(type: TypeInformation) -> list[TypeInformation]:
    """The type itself, and what it is made of where it isn't a record."""
    return [type] if type.fields is not None else [type, *(part for child in type.children for part in parts(child))]


class TestSink(fp.CollectSink):
    """Collects what comes to a stream's end. ``add_sink`` says which type that has."""

    def __init__(self) -> None:
        super().__init__()
        self.stream_type: TypeInformation | None = None
        self.of_table = False

    def get_results(self, is_python_object: bool = False, stringify: bool = True) -> list[Any]:
        results = self.take()
        if is_python_object:
            return [str(each) for each in results] if stringify else results
        return [java_text(each, self.stream_type, of_table=self.of_table) for each in results]

    def clear(self) -> None:
        self.take()


def add_sink(stream: Any, sink: TestSink) -> Any:
    sink.stream_type = stream.get_type()
    sink.of_table = any(edge.upstream in FROM_TABLES for edge in stream.edges)
    return stream.sink_to(sink)


FROM_TABLES: list[Any] = []
"""The operators whose output is a table's rows, as a stream."""
# The options of the connector that Flink keeps for its tests, and today's.
OLD_CSV = {
    "'connector.type'": "'connector'",
    "'format.type'": "'format'",
    "'connector.path'": "'path'",
    "'format.field-delimiter'": "'csv.field-delimiter'",
    "'format.ignore-first-line' = 'false',": "",
}


class TableEnvironment(forkpoint.pyflink.tables.TableEnvironment):
    """Reads files by the options of old: of a line as many values as there are columns."""

    def execute_sql(self, stmt: str) -> Any:
        is_old = "'connector.type'" in stmt
        for old, new in OLD_CSV.items():
            stmt = stmt.replace(old, new)
        result = super().execute_sql(stmt)
        if is_old:
            table = list(self._session.catalog.tables.values())[-1]
            path, delimiter = Path(table.options["path"]), table.options["csv.field-delimiter"]
            lines = [line.split(delimiter)[: len(table.schema)] for line in path.read_text().splitlines()]
            path.write_text("".join(f"{delimiter.join(values)}\n" for values in lines))
        return result


class StreamTableEnvironment(TableEnvironment, forkpoint.pyflink.tables.StreamTableEnvironment):
    def to_data_stream(self, table: Any) -> Any:
        stream = super().to_data_stream(table)
        FROM_TABLES.extend(edge.upstream for edge in stream.edges)
        return stream


class SecondColumnTimestampAssigner(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


class PyFlinkTestCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.tempdir = tempfile.mkdtemp()

    @classmethod
    def tearDownClass(cls) -> None:
        shutil.rmtree(cls.tempdir, ignore_errors=True)

    @classmethod
    def assert_equals(cls, actual: list[Any], expected: list[Any]) -> None:
        assert sorted(actual) == sorted(expected), (actual, expected)


class PyFlinkStreamingTestCase(PyFlinkTestCase):
    mode = fp.RuntimeExecutionMode.STREAMING

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.env = StreamExecutionEnvironment.get_execution_environment()
        cls.env.set_parallelism(2)
        cls.env.set_runtime_mode(cls.mode)


class PyFlinkUTTestCase(PyFlinkTestCase):
    def setUp(self) -> None:
        self.env = StreamExecutionEnvironment.get_execution_environment()
        self.env.set_parallelism(2)
        self.env.set_runtime_mode(fp.RuntimeExecutionMode.STREAMING)
        self.t_env = StreamTableEnvironment.create(self.env)


class PyFlinkBatchTestCase(PyFlinkStreamingTestCase):
    mode = fp.RuntimeExecutionMode.BATCH


def exec_insert_table(table: fp.Table, path: str) -> Any:
    return table.execute_insert(path).get_job_client().get_job_execution_result().result()


SINKS: list[tuple[TestSink, Any]] = []


def table_sink(table: Any) -> TestSink:
    """The sink of a table of PyFlink's tests."""
    sink = TestSink()
    SINKS.append((sink, row_type(table.schema)))
    return sink


def no_rows(options: Any) -> CollectionSource:
    for name in options.table.options:
        options.get(name)
    return CollectionSource([], row_type(options.table.schema))


def results(*_: Any) -> list[str]:
    """What remains of the rows of the tables that jobs have written, as Java's text."""
    found = []
    for sink, of in SINKS:
        rows: Counter[str] = Counter()
        for row in sink.take():
            *values, weight = row if len(row) > len(of.names) else (*row, 1)
            rows[line_of(short_floats(values, of), weighted=False)] += weight
        found += list(rows.elements())
    SINKS.clear()
    return found


def table_case(base: type[PyFlinkTestCase]) -> type[PyFlinkTestCase]:
    class Case(base):  # type: ignore[misc, valid-type]
        """With a table environment."""

        @classmethod
        def setUpClass(cls) -> None:
            super().setUpClass()
            cls.t_env = StreamTableEnvironment.create(cls.env)

    return Case


PyFlinkStreamTableTestCase = table_case(PyFlinkStreamingTestCase)
PyFlinkBatchTableTestCase = table_case(PyFlinkBatchTestCase)


INTERNALS_OF_TYPES = (
    "_infer_schema_from_data",
    "_create_converter",
    "_array_signed_int_typecode_ctype_mappings",
    "_array_unsigned_int_typecode_ctype_mappings",
    "_array_type_mappings",
    "_merge_type",
    "_create_type_verifier",
    "_from_java_data_type",
    "_to_java_data_type",
    "_infer_type",
)


def module(name: str, **names: Any) -> ModuleType:
    made = sys.modules[name] = ModuleType(name)
    vars(made).update(names)
    return made


def install() -> None:
    forkpoint.pyflink.install()
    import pyflink.common
    import pyflink.common.typeinfo
    import pyflink.common.watermark_strategy
    import pyflink.table.types

    pyflink.common.typeinfo._from_java_type = None
    pyflink.table.types.UserDefinedType = object
    vars(pyflink.table.types).update(dict.fromkeys(INTERNALS_OF_TYPES))
    pyflink.table.TableEnvironment, pyflink.table.StreamTableEnvironment = TableEnvironment, StreamTableEnvironment
    pyflink.common.Configuration = Configuration
    pyflink.common.WatermarkStrategy = pyflink.common.watermark_strategy.WatermarkStrategy = WatermarkStrategy
    for name in ("java_gateway", "find_flink_home", "pyflink_gateway_server"):
        module(f"pyflink.{name}").__getattr__ = lambda name: Jvm
    module("pyflink.util.java_utils", get_j_env_configuration=JavaConfiguration).__getattr__ = lambda name: Jvm
    module("pyflink.datastream.tests")
    module(
        "pyflink.datastream.tests.test_util",
        DataStreamTestSinkFunction=TestSink,
        SecondColumnTimestampAssigner=SecondColumnTimestampAssigner,
    )
    source_sink_utils = module("pyflink.testing.source_sink_utils", results=results, retract_results=results)
    module("pyflink.testing", source_sink_utils=source_sink_utils)
    module("pyflink.table.tests")
    CONNECTORS["test-sink"] = Connector(None, lambda options: table_sink(options.table), "all")
    CONNECTORS["COLLECTION"] = Connector(no_rows)
    os.environ["_python_worker_execution_mode"] = "process"  # noqa: SIM112
    module(
        "pyflink.testing.test_case_utils",
        PythonAPICompletenessTestCase=object,
        exec_insert_table=exec_insert_table,
        _load_specific_flink_module_jars=None,
        PyFlinkStreamTableTestCase=PyFlinkStreamTableTestCase,
        PyFlinkBatchTableTestCase=PyFlinkBatchTableTestCase,
        PyFlinkTestCase=PyFlinkTestCase,
        PyFlinkUTTestCase=PyFlinkUTTestCase,
        PyFlinkStreamingTestCase=PyFlinkStreamingTestCase,
        PyFlinkBatchTestCase=PyFlinkBatchTestCase,
    )
    SinkMixin.add_sink = add_sink
    StreamExecutionEnvironment._j_stream_execution_environment = property(lambda env: env)
    AvroSchema._j_schema = property(lambda schema: JavaSchema(json.loads(str(schema))))
    fp.SerializationSchema._j_serialization_schema = property(JavaFormat)
    fp.DeserializationSchema._j_deserialization_schema = property(JavaFormat)
    py4j.java_gateway.java_import = lambda *_: None
    py4j.protocol.Py4JJavaError = fp.ForkpointError
