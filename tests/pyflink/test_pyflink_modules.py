"""The map of names: PyFlink's modules as forkpoint serves them."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import forkpoint as fp
import forkpoint.pyflink
from forkpoint.pyflink.absent import Absent

NAMES = Path(__file__).parents[1] / "parity" / "pyflink" / "names.json"

forkpoint.pyflink.install()


def public_names() -> list[tuple[str, str]]:
    return [(module, name) for module, names in json.loads(NAMES.read_text()).items() for name in names]


def test_every_public_name_of_pyflink_stands_for_something_or_says_what_to_use():
    for module, name in public_names():
        found = getattr(importlib.import_module(module), name)
        if isinstance(found, Absent):
            with pytest.raises(fp.GraphError, match=f"{name} is not supported: .*Instead, "):
                found()


def test_no_module_has_a_name_that_pyflink_has_not():
    known = {f"{module}.{name}" for module, name in public_names()}
    extra = {
        f"{module}.{name}" for module, names in forkpoint.pyflink.names.MODULES.items() for name in names
        if f"{module}.{name}" not in known
    }  # fmt: skip
    # They are in these modules of PyFlink's too, though not in its __all__.
    assert extra == {
        "pyflink.version.__version__", "pyflink.datastream.AllWindowedStream", "pyflink.datastream.AllWindowFunction",
        "pyflink.datastream.BaseBroadcastProcessFunction", "pyflink.datastream.CloseableIterator",
        "pyflink.datastream.connectors.kafka.KafkaRecordDeserializationSchema",
        "pyflink.datastream.Function", "pyflink.datastream.ProcessAllWindowFunction",
        "pyflink.datastream.data_stream.AllWindowedStream",
        "pyflink.datastream.functions.Function", "pyflink.datastream.state.State", "pyflink.datastream.state.StateDescriptor",
    }  # fmt: skip


def test_objects_are_forkpoints_own():
    from pyflink.common import Row
    from pyflink.common.types import Row as SameRow

    assert Row is SameRow is fp.Row
    everything: dict[str, object] = {}
    exec("from pyflink.datastream import *", everything)
    assert everything["StreamExecutionEnvironment"] is fp.StreamExecutionEnvironment


def test_names_that_nobody_has():
    with pytest.raises(ImportError, match="cannot import name 'Flow'"):
        from pyflink.common import Flow  # noqa: F401
    with pytest.raises(ModuleNotFoundError, match=r"pyflink\.streams"):
        importlib.import_module("pyflink.streams")


@pytest.mark.parametrize("use", ["Table()", "Table.x", "class Mine(Table): ..."])
def test_any_use_of_what_is_absent_is_refused(use):
    from pyflink.table import Table

    with pytest.raises(fp.GraphError, match=r"pyflink\.table\.Table is not supported.*env\.from_dataframe"):
        exec(use, {"Table": Table})


def test_annotations_with_what_is_absent():
    from pyflink.table import Table

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
