"""What PyFlink's own tests need of PyFlink's test utilities and of the JVM, in terms of forkpoint."""

from __future__ import annotations

import datetime
import shutil
import sys
import tempfile
import unittest
from types import ModuleType
from typing import Any

import numpy as np
import py4j.protocol

import forkpoint as fp
import forkpoint.pyflink
from forkpoint.api.outputs import SinkMixin
from forkpoint.functions import TimestampAssigner
from forkpoint.pyflink.environment import StreamExecutionEnvironment
from forkpoint.types import TypeInformation


class Jvm:
    """Any path of Java names, called or not: good for being passed on, and nothing else."""

    def __init__(self, path: str = "") -> None:
        self._path = path

    def __getattr__(self, name: str) -> Jvm:
        if name.startswith("__"):
            raise AttributeError(name)
        return Jvm(f"{self._path}.{name}")

    def __call__(self, *arguments: Any) -> Jvm:
        return Jvm(f"{self._path}({', '.join(a._path for a in arguments if isinstance(a, Jvm))})")


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


def java_text(value: Any, type: TypeInformation | None = None) -> str:
    """An element as Java's ``toString`` has it."""
    if value is None:
        return "null"
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
    types = (
        [field.type for field in type.fields] if type is not None and type.fields is not None else [None] * len(record)
    )
    return list(map(java_text, record, types))


def parts(type: TypeInformation) -> list[TypeInformation]:
    """The type itself, and what it is made of where it isn't a record."""
    return [type] if type.fields is not None else [type, *(part for child in type.children for part in parts(child))]


class TestSink(fp.CollectSink):
    """Collects what comes to a stream's end. ``add_sink`` says which type that has."""

    def __init__(self) -> None:
        super().__init__()
        self.stream_type: TypeInformation | None = None

    def get_results(self, is_python_object: bool = False, stringify: bool = True) -> list[Any]:
        results = self.take()
        if is_python_object:
            return [str(each) for each in results] if stringify else results
        return [java_text(each, self.stream_type) for each in results]

    def clear(self) -> None:
        self.take()


def add_sink(stream: Any, sink: TestSink) -> Any:
    sink.stream_type = stream.get_type()
    return stream.sink_to(sink)


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


class PyFlinkStreamingTestCase(PyFlinkTestCase):
    mode = fp.RuntimeExecutionMode.STREAMING

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.env = StreamExecutionEnvironment.get_execution_environment()
        cls.env.set_parallelism(2)
        cls.env.set_runtime_mode(cls.mode)


class PyFlinkBatchTestCase(PyFlinkStreamingTestCase):
    mode = fp.RuntimeExecutionMode.BATCH


def module(name: str, **names: Any) -> ModuleType:
    made = sys.modules[name] = ModuleType(name)
    vars(made).update(names)
    return made


def install() -> None:
    forkpoint.pyflink.install()
    import pyflink.common
    import pyflink.common.typeinfo
    import pyflink.common.watermark_strategy

    pyflink.common.typeinfo._from_java_type = None
    pyflink.common.Configuration = Configuration
    pyflink.common.WatermarkStrategy = pyflink.common.watermark_strategy.WatermarkStrategy = WatermarkStrategy
    for name in ("java_gateway", "find_flink_home", "table", "table.udf", "pyflink_gateway_server"):
        module(f"pyflink.{name}").__getattr__ = lambda name: Jvm
    module("pyflink.util.java_utils", get_j_env_configuration=JavaConfiguration).__getattr__ = lambda name: Jvm
    module("pyflink.datastream.tests")
    module(
        "pyflink.datastream.tests.test_util",
        DataStreamTestSinkFunction=TestSink,
        SecondColumnTimestampAssigner=SecondColumnTimestampAssigner,
    )
    module("pyflink.testing")
    module(
        "pyflink.testing.test_case_utils",
        PythonAPICompletenessTestCase=object,
        exec_insert_table=None,
        PyFlinkTestCase=PyFlinkTestCase,
        PyFlinkStreamingTestCase=PyFlinkStreamingTestCase,
        PyFlinkBatchTestCase=PyFlinkBatchTestCase,
    )
    SinkMixin.add_sink = add_sink
    StreamExecutionEnvironment._j_stream_execution_environment = property(lambda env: env)
    py4j.protocol.Py4JJavaError = fp.ForkpointError
