import subprocess
import sys
import types
from importlib import import_module
from importlib.metadata import entry_points

import pytest

import forkpoint
import forkpoint_spark_checkpoints
from forkpoint import extras, lazy, operations, state_processor
from forkpoint.cli import packages

HEAVY = (
    "pyspark",
    "starlette",
    "uvicorn",
    "click",
    "rich",
    "confluent_kafka",
    "redis",
    "cassandra",
    "boto3",
    "sqlalchemy",
    "psycopg",
    "deltalake",
    "pyiceberg",
    "pika",
    "paho",
    "opensearchpy",
    "prometheus_client",
)


def test_the_public_names_are_those_of_all():
    public = {
        name
        for name, value in vars(forkpoint.public).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert public == set(forkpoint.public.__all__)
    names = [*forkpoint.public.__all__, *forkpoint.packages.__all__]
    assert set(names) == set(forkpoint.__all__)
    assert len(forkpoint.__all__) == len(names)


def test_the_names_of_the_connector_packages_are_theirs():
    listed = dict(lazy.listed("forkpoint.packages"))
    assert sorted(listed) == forkpoint.packages.__all__
    assert {name for package in extras.CONNECTORS for name in import_module(package).__all__} == set(listed)
    found = {each.value for each in entry_points(group="forkpoint.connectors")}
    assert found == set(extras.CONNECTORS) == set(listed.values())


@pytest.mark.parametrize("module", [state_processor, operations])
def test_the_names_of_the_importer_are_among_those_of_the_module(module):
    listed = {name: place.partition(".")[0] for name, place in lazy.listed(module.__name__)}
    own = {name for name, package in listed.items() if package != "forkpoint"}
    assert own < set(module.__all__) < set(listed)
    assert {getattr(module, name).__module__.partition(".")[0] for name in own} == {"forkpoint_spark_checkpoints"}
    assert state_processor.__all__[-len(forkpoint_spark_checkpoints.__all__) :] == forkpoint_spark_checkpoints.__all__


def test_the_commands_of_packages_are_entry_points_in_them():
    found = {each.name: each for each in entry_points(group="forkpoint.commands")}
    assert {name: each.module.partition(".")[0] for name, each in found.items()} == packages.PACKAGES
    assert {name: each.load().name for name, each in found.items()} == {name: name for name in found}
    assert set(extras.CONNECTORS) | set(packages.PACKAGES.values()) == set(extras.PACKAGES)


def test_names_are_loaded_when_they_are_used():
    program = (
        "import sys, forkpoint; print('numpy' in sys.modules, 'DataStream' in dir(forkpoint)); forkpoint.DataStream.map;"
        "from forkpoint import *; DataStream, Types; forkpoint.testing.run_local; forkpoint.errors"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert found.split() == ["False", "True"]
    with pytest.raises(AttributeError, match="module 'forkpoint' has no attribute 'DataStreams'"):
        _ = forkpoint.DataStreams


def test_all_is_sorted():
    constants = [name for name in forkpoint.__all__ if name.isupper()]
    others = [name for name in forkpoint.__all__ if not name.isupper()]
    assert forkpoint.__all__ == sorted(constants) + sorted(others)


def test_importing_forkpoint_loads_neither_an_engine_nor_a_server():
    program = f"import sys, forkpoint.public; print([m for m in {HEAVY} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert found.strip() == "[]"


@pytest.mark.parametrize("name", forkpoint.__all__)
def test_every_public_class_and_method_has_a_docstring(name):
    thing = getattr(forkpoint, name)
    if not isinstance(thing, type):
        return
    assert thing.__doc__, name
    own = {attribute: value for attribute, value in vars(thing).items() if not attribute.startswith("_")}
    if not thing.__module__.startswith(("forkpoint.api", "forkpoint.functions", "forkpoint.graph")):
        return
    methods = {a: v.__func__ if isinstance(v, staticmethod | classmethod) else v for a, v in own.items()}
    undocumented = [
        a for a, v in methods.items() if isinstance(v, types.FunctionType | property) and not (v.__doc__ or _inherited(thing, a))
    ]
    assert not undocumented


def _inherited(cls, attribute):
    return any(getattr(vars(base).get(attribute), "__doc__", None) for base in cls.__mro__[1:])
