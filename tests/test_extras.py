"""A feature whose package is not installed says which extra brings it."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

import forkpoint as fp
from forkpoint import extras, packages
from forkpoint.cli import main
from forkpoint.cli import packages as command_packages
from forkpoint.connectors.files.s3 import s3_client
from forkpoint.errors import ConfigError
from forkpoint.lazy import listed
from forkpoint.state import open_store
from forkpoint.state_processor import SavepointReader, SavepointWriter
from forkpoint.storage.base import open_storage

ROOT = Path(__file__).resolve().parents[1]


def saved(directory):
    writer = SavepointWriter.new_savepoint("job")
    counts = {"key": ["a", "b"], "value": [1, 2]}
    return writer.with_state("u", fp.ValueStateDescriptor("n", int), counts, key_type=str).write(directory / "s").path


class Whole(fp.KafkaRecordDeserializationSchema):
    def deserialize(self, record):
        return record


FEATURES = {
    "sql": ("duckdb", lambda path, directory: SavepointReader.read(path).query('SELECT * FROM "u"."n"')),
    "sql, views": ("duckdb", lambda path, directory: SavepointReader.read(path).views()),
    "sql, conditions": (
        "duckdb",
        lambda path, directory: SavepointWriter.from_existing_savepoint(path).filter("u", "key <> 'a'").write(directory / "t"),
    ),
    "pandas": ("pandas", lambda path, directory: SavepointReader.read(path).state("u", "n").to_pandas()),
    "hdfs": (
        "hdfs_native",
        lambda path, directory: open_storage("hdfs://localhost:1/state")._client,
    ),  # does not connect
    "kafka": (
        "confluent_kafka",
        lambda path, directory: (
            fp.KafkaSource.builder().set_bootstrap_servers("b:1").set_topics("t").set_deserializer(Whole()).build()
        ),
    ),
    "s3": ("boto3.session", lambda path, directory: s3_client()),
    "rocksdb": ("rocksdict", lambda path, directory: open_store("rocksdb", directory / "store")),
}


@pytest.mark.parametrize("feature", FEATURES)
def test_without_the_package_the_extra_is_named(feature, tmp_path, monkeypatch):
    path = saved(tmp_path)
    package, use = FEATURES[feature]
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=rf"needs {package}.*pip install \"forkpoint\[{feature.split(',')[0]}\]\""):
        use(path, tmp_path)


@pytest.mark.parametrize("name", packages.__all__)
def test_without_a_connector_package_its_extra_is_named(name, monkeypatch):
    package = dict(listed("forkpoint.packages"))[name]
    monkeypatch.delattr(fp, name, raising=False)
    for module in [each for each in sys.modules if each.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    expected = f'forkpoint.{name} needs {package.replace("_", "-")}, which is not installed; run: pip install "forkpoint['
    with pytest.raises(ImportError, match=re.escape(expected)) as raised:
        exec(f"from forkpoint import {name}")
    assert isinstance(raised.value, ConfigError)
    assert name not in fp.__all__


IMPORTER = "forkpoint_spark_checkpoints"
EXTRA = 'needs forkpoint-spark-checkpoints, which is not installed; run: pip install "forkpoint[spark-checkpoints]"'


@pytest.mark.parametrize("module", ["forkpoint.state_processor", "forkpoint.operations"])
def test_without_the_importer_its_extra_is_named(module):
    (first, *_) = names = [name for name, place in listed(module) if place.startswith(IMPORTER)]
    program = f"""
import os, sys
sys.path = [place for place in sys.path if not os.path.isdir(os.path.join(place, {IMPORTER!r}))]
import {module} as module
from {module} import *
assert not {set(names)!r} & set(module.__all__)
for name in {names[1:]!r}:
    try:
        getattr(module, name)
    except ImportError:
        continue
    raise AssertionError(name)
from {module} import {first}
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert f"NotInstalled: {module}.{first} {EXTRA}" in done.stderr


def test_without_the_importer_its_command_names_the_extra(monkeypatch):
    monkeypatch.setattr(command_packages, "entry_points", lambda group: [])
    assert "import-spark-checkpoint" not in CliRunner().invoke(main, ["--help"]).stdout
    done = CliRunner().invoke(main, ["import-spark-checkpoint", "--help"])
    assert (done.exit_code, done.stderr) == (1, f"Error: `forkpoint import-spark-checkpoint` {EXTRA}\n")
    assert "No such command 'import-flink'" in CliRunner().invoke(main, ["import-flink"]).stderr


@pytest.mark.parametrize("feature", FEATURES)
def test_with_the_package_it_works(feature, tmp_path):
    path = saved(tmp_path)
    FEATURES[feature][1](path, tmp_path)


def test_a_job_with_the_rocksdb_backend_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local", "state.backend.type": "rocksdb"})
    sums = env.from_collection([1, 2], int).uid("in").key_by(lambda n: n, int).reduce(lambda a, b: a + b).uid("sums")
    with pytest.raises(ConfigError, match=r"pip install \"forkpoint\[rocksdb\]\""):
        list(sums.execute_and_collect())


def test_each_extra_is_declared_and_all_has_them_all():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = project["optional-dependencies"]
    extra_of = [(package, extra) for package, several in extras._EXTRAS.items() for extra in several.split(",")]
    assert {extra for _, extra in extra_of} == set(declared) - {"all"}
    distributions = {
        "google.protobuf": "protobuf",
        "boto3.session": "boto3",
        "deltalake": "forkpoint-lakehouse[delta]",
        "pyiceberg": "forkpoint-lakehouse[iceberg]",
        "confluent_kafka.schema_registry": "confluent-kafka[schemaregistry]",
        "authlib": "confluent-kafka[schemaregistry]",
        "opentelemetry.sdk": "opentelemetry-sdk",
    }
    for package, extra in extra_of:
        distribution = distributions.get(package, package.replace("_", "-"))
        assert any(requirement.startswith(distribution) for requirement in declared[extra])
        assert not any(requirement.startswith(package) for requirement in project["dependencies"])
    everything = [name for group in declared["all"] for name in group.removeprefix("forkpoint[").removesuffix("]").split(",")]
    assert sorted(everything) == sorted(set(declared) - {"all"})
