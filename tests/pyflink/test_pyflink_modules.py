"""The map of names: PyFlink's modules as forkpoint serves them."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import forkpoint as fp
import forkpoint.pyflink
from forkpoint.pyflink.absent import Absent, absent_module

NAMES = Path(__file__).parents[1] / "parity" / "pyflink" / "names.json"

forkpoint.pyflink.install()


def public_names() -> list[tuple[str, str]]:
    return [(module, name) for module, names in json.loads(NAMES.read_text()).items() for name in names]


def test_every_public_name_of_pyflink_stands_for_something_or_says_what_to_use():
    for module, name in public_names():
        found: dict[str, Any] = {}
        exec(f"from {module} import {name} as it", found)
        if isinstance(found["it"], Absent):
            with pytest.raises(fp.GraphError, match=f"{name} is not supported: .*Instead, "):
                found["it"]()


def test_no_module_has_a_name_that_pyflink_has_not():
    known = {f"{module}.{name}" for module, name in public_names()}
    extra = {
        f"{module}.{name}"
        for module, names in forkpoint.pyflink.names.MODULES.items()
        for name in names
        if f"{module}.{name}" not in known
    }
    # They are in these modules of PyFlink's under other circumstances, or were in Flink 1's.
    assert extra == {
        "pyflink.version.__version__",
        "pyflink.datastream.AllWindowedStream",
        "pyflink.datastream.AllWindowFunction",
        "pyflink.datastream.BaseBroadcastProcessFunction",
        "pyflink.datastream.CloseableIterator",
        "pyflink.datastream.Function",
        "pyflink.datastream.ProcessAllWindowFunction",
        "pyflink.datastream.connectors.kafka.KafkaRecordDeserializationSchema",
        "pyflink.datastream.externalized_checkpoint_cleanup.ExternalizedCheckpointCleanup",
        "pyflink.datastream.time_characteristic.TimeCharacteristic",
        "pyflink.table.udf.udf",
    }


@pytest.mark.parametrize(
    "path",
    [
        "pyflink.datastream.connectors.FileSink",
        "pyflink.datastream.connectors.FlinkKafkaConsumer",
        "pyflink.datastream.TimeCharacteristic",
        "pyflink.common.serialization.JsonRowDeserializationSchema",
        "pyflink.datastream.checkpoint_config.ExternalizedCheckpointCleanup",
        "pyflink.datastream.state_backend.RocksDBStateBackend",
        "pyflink.datastream.Time",
        "pyflink.datastream.connectors.JdbcSink",
        "pyflink.datastream.connectors.StreamingFileSink",
        "pyflink.common.restart_strategy.RestartStrategies",
    ],
)
def test_names_are_found_where_other_releases_have_them(path):
    module, _, name = path.rpartition(".")
    exec(f"from {module} import {name}")


def test_no_import_fails_without_saying_what_is_missing():
    """Whatever a module lacks: Python's own "unknown location" is never seen."""
    for module in json.loads(NAMES.read_text()):
        if absent_module(module) is None:
            with pytest.raises(ImportError, match=f"^PyFlink 2.3.0 has no 'Nothing1' in {module}$"):
                exec(f"from {module} import Nothing1")
            assert not hasattr(importlib.import_module(module), "Nothing1")


def test_objects_are_forkpoints_own():
    from pyflink.common import Row
    from pyflink.common.types import Row as SameRow

    assert Row is SameRow is fp.Row
    everything: dict[str, Any] = {}
    exec("from pyflink.datastream import *", everything)
    assert everything["DataStream"] is fp.DataStream
    assert issubclass(everything["StreamExecutionEnvironment"], fp.StreamExecutionEnvironment)


def test_names_that_nobody_has():
    with pytest.raises(ImportError, match=r"^PyFlink 2\.3\.0 has no 'Flow' in pyflink\.common$"):
        from pyflink.common import Flow  # noqa: F401
    with pytest.raises(ImportError, match=r"did you mean pyflink\.datastream\.connectors\.kafka\.KafkaSource\?"):
        from pyflink.datastream import KafkaSources  # noqa: F401
    with pytest.raises(ModuleNotFoundError, match=r"has no 'streams' in pyflink"):
        importlib.import_module("pyflink.streams")
    with pytest.raises(AttributeError, match=r"^module 'pyflink' has no attribute '__file__'$"):
        _ = importlib.import_module("pyflink").__file__
    with pytest.raises(fp.ConfigError, match=r"no Java environment here; set options with env\.configure"):
        _ = importlib.import_module("pyflink.datastream").StreamExecutionEnvironment()._j_stream_execution_environment


@pytest.mark.parametrize("use", ["Table()", "Table.x", "class Mine(Table): ..."])
def test_any_use_of_what_is_absent_is_refused(use):
    from pyflink.table.catalog import CatalogFunction as Table

    with pytest.raises(fp.GraphError, match=r"pyflink\.table\.catalog\.CatalogFunction is not supported.*execute_sql"):
        exec(use, {"Table": Table})


def test_annotations_with_what_is_absent():
    from pyflink.table.catalog import CatalogFunction as Table

    def either(table: Table | None = None, tables: Table[int] | None = None) -> None: ...

    assert not isinstance(either, Table)


def test_pyflink_itself_is_not_replaced_once_it_is_loaded():
    program = (
        "import sys, types; sys.modules['pyflink'] = types.ModuleType('pyflink')\n"
        "import forkpoint.pyflink; forkpoint.pyflink.install()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "ConfigError: PyFlink itself is already loaded in this process" in done.stderr


def test_what_is_shipped_finds_pyflink_where_it_is_loaded():
    from forkpoint.types import dumps

    def kind():
        from pyflink.common import RowKind

        return RowKind.INSERT.name

    program = f"import pickle; print(pickle.loads({dumps(kind)!r})())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "INSERT\n"


@pytest.mark.parametrize("key", ["execution.checkpointing.timeout", "restart-strategy.fixed-delay.delay"])
def test_a_duration_without_a_unit_is_in_milliseconds_as_in_flink(key):
    """Fails before: refused, as elsewhere in forkpoint, though Flink's own test writes one."""
    env = importlib.import_module("pyflink.datastream").StreamExecutionEnvironment.get_execution_environment(
        {"restart-strategy.type": "fixed-delay", key: "12000"}
    )
    assert 12_000 in (env.options.checkpoint.timeout_ms, env.options.restart.delay_ms)
