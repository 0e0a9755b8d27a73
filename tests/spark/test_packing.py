"""What of an environment is packed, and what of the driver's variables is passed."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from forkpoint import Configuration
from forkpoint.api.configuration import apply_configuration
from forkpoint.errors import ConfigError
from forkpoint.graph.options import JobOptions
from forkpoint.graph.secrets import is_secret
from forkpoint.spark.shipping.provisions import passed

SYSTEMS_PYTHON = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
SRC = Path(__file__).resolve().parents[2] / "src"
PACK = """
import sys
from forkpoint.errors import ForkpointError
from forkpoint.spark.shipping.archive import packed_environment
try:
    print(packed_environment(lambda done, total: print(done, total, file=sys.stderr)))
except ForkpointError as error:
    print(error)
"""


class Environment:
    """A virtual environment with few packages, in which forkpoint is on PYTHONPATH."""

    def __init__(self, home: Path, python: str = sys.executable) -> None:
        self.home = home / "environment"
        self.cache = home / "cache"
        subprocess.check_call([python, "-m", "venv", "--without-pip", str(self.home)])
        (self.packages,) = self.home.glob("lib/*/site-packages")

    def write(self, name: str, text: str) -> Path:
        place = self.packages / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        return place

    def pack(self) -> str:
        """The place of the archive, or the error."""
        path = os.pathsep.join([str(SRC), *(entry for entry in sys.path if entry.endswith("site-packages"))])
        environment = {**os.environ, "PYTHONPATH": path, "XDG_CACHE_HOME": str(self.cache)}
        return subprocess.check_output(
            [self.home / "bin" / "python", "-c", PACK], env=environment, text=True, stderr=subprocess.DEVNULL
        ).strip()

    def unpacked(self, to: Path) -> Path:
        with tarfile.open(self.pack()) as archive:
            archive.extractall(to)  # our own; Debian's Python 3.11 has no filters
        return to


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment(tmp_path)


def run(python: Path, code: str) -> str:
    return subprocess.check_output([python, "-c", code], text=True, env={"PATH": "/usr/bin:/bin"}).strip()


def test_a_packed_environment_runs_elsewhere_with_the_sources_of_editable_packages(
    environment: Environment, tmp_path: Path
) -> None:
    sources = editable(environment, tmp_path)
    environment.write("plain.py", "value = 1")
    environment.write("pyspark/jars/big.jar", "not needed")
    environment.write("pyspark/data.py", "")
    there = environment.unpacked(tmp_path / "there")
    subprocess.check_call(["rm", "-r", environment.home, *sources])
    python = there / "bin" / "python"
    assert run(python, "import plain, ssl, sqlite3; print(plain.value, plain.__file__)") == (
        f"1 {there}/lib/{environment.packages.parent.name}/site-packages/plain.py"
    )
    assert not list(there.rglob("*.jar"))
    assert list(there.rglob("pyspark/data.py"))
    assert run(python, "import sys; print(sys.version)") == sys.version.strip()
    assert run(python, "import one, two, three; print(one.value, two.value, three.value)") == "1 2 3"
    names = [place.name for place in there.rglob("*")]
    assert "table.csv" in names
    assert "text.md" not in names
    assert "hook.py" not in names


def makes_environments(python: str) -> bool:
    return os.path.exists(python) and subprocess.run([python, "-c", "import venv"], capture_output=True).returncode == 0


@pytest.mark.skipif(
    not makes_environments(SYSTEMS_PYTHON),
    reason="needs a Python of the system of the version that packages are made for",
)
def test_an_environment_of_the_systems_python_uses_that_of_the_host(tmp_path: Path) -> None:
    environment = Environment(tmp_path, SYSTEMS_PYTHON)
    environment.write("plain.py", "value = 1")
    there = environment.unpacked(tmp_path / "there")
    subprocess.check_call(["rm", "-r", environment.home])
    python = there / "bin" / "python"
    assert os.path.realpath(python) == os.path.realpath(SYSTEMS_PYTHON)
    assert run(python, "import plain, sys; print(plain.value, sys.base_prefix)") == "1 /usr"


def editable(environment: Environment, tmp_path: Path) -> list[Path]:
    """Where the sources of three packages are that are installed as editable."""
    src, flat = tmp_path / "one" / "src", tmp_path / "two"
    for place, text in {
        src / "one" / "__init__.py": "from one.inner import value",
        src / "one" / "inner.py": "value = 1",
        src / "one" / "table.csv": "data",
        src / ".git" / "hook.py": "",
        flat / "two" / "__init__.py": "value = 2",
        flat / "notes" / "text.md": "",
        tmp_path / "three" / "three" / "__init__.py": "value = 3",
    }.items():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    environment.write("_one.pth", f"{src}\n")
    environment.write("two.pth", f"{flat}\n")
    # As setuptools makes it for projects whose packages are not below one directory.
    environment.write("__editable___three_finder.py", f"MAPPING: dict[str, str] = {{'three': '{tmp_path}/three/three'}}\n")
    environment.write("__editable__.three.pth", "import __editable___three_finder; __editable___three_finder.install()\n")
    return [src, flat, tmp_path / "three"]


def test_it_is_packed_once_for_each_state_and_kept_while_a_driver_uses_it(environment: Environment) -> None:
    module = environment.write("plain.py", "value = 1")
    first = Path(environment.pack())
    made = first.stat().st_mtime_ns
    run(environment.home / "bin" / "python", "import plain")  # compiles it
    assert (environment.pack(), first.stat().st_mtime_ns) == (str(first), made)
    module.write_text("value = 22")
    with open(first, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        second = Path(environment.pack())
        assert second != first
        assert set(first.parent.iterdir()) == {first, second}
    assert environment.pack() == str(second)
    assert list(second.parent.iterdir()) == [second]  # nobody uses the first one any more


def test_environments_that_cannot_travel_are_refused(environment: Environment) -> None:
    config = environment.home / "pyvenv.cfg"
    config.write_text(config.read_text().replace("packages = false", "packages = true"))
    assert "also uses packages outside of it" in environment.pack()


def test_an_archive_that_cannot_be_written_is_reported(environment: Environment) -> None:
    (environment.cache / "forkpoint").mkdir(parents=True)
    (environment.cache / "forkpoint" / "environments").write_text("in the way")
    assert "set XDG_CACHE_HOME to another directory" in environment.pack()


def test_variables_by_name_and_prefix() -> None:
    driver = {"AWS_REGION": "eu", "AWS_SECRET_ACCESS_KEY": "s", "AWSOME": "no", "TOKEN": "t", "HOME": "/root"}
    assert passed(["AWS_*", "TOKEN"], driver) == {"AWS_REGION": "eu", "AWS_SECRET_ACCESS_KEY": "s", "TOKEN": "t"}
    assert passed([], driver) == {}
    with pytest.raises(ConfigError, match="has no variable that begins with KAFKA_"):
        passed(["AWS_*", "KAFKA_*"], driver)
    with pytest.raises(ConfigError, match="no variable TOKE"):
        passed(["TOKE"], driver)


@pytest.mark.parametrize("name", ["*", "AWS-KEY", "A=b", "", "A*B", "1A"])
def test_what_names_no_variables_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="does not name environment variables"):
        JobOptions(pass_env=[name])


def test_the_configuration_has_keys_for_both() -> None:
    configuration = Configuration.from_dict({"execution.ship-environment": "true", "execution.pass-environment": "AWS_*, TOKEN"})
    options = apply_configuration(JobOptions(), configuration)
    assert options.ship_env
    assert options.pass_env == ("AWS_*", "TOKEN")


@pytest.mark.parametrize(
    "name",
    [
        "spark.executorEnv.AWS_SECRET_ACCESS_KEY",
        "spark.executorEnv.AWS_SESSION_TOKEN",
        "spark.hadoop.fs.s3a.secret.key",
        "spark.hadoop.fs.s3a.access.key",
        "spark.executorEnv.AZURE_STORAGE_ACCOUNT_KEY",
        "spark.authenticate.secret",
        "spark.executorEnv.GOOGLE_APPLICATION_CREDENTIALS",
        "spark.executorEnv.AZURE_STORAGE_SAS_KEY",
        "spark.hadoop.fs.azure.account.key.box.blob.core.windows.net",
        "spark.ssl.keyPassword",
    ],
)
def test_settings_with_credentials_are_known_by_their_names(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize("name", ["spark.master", "spark.executor.memory", "spark.executorEnv.AWS_REGION", "spark.sql.keyspace"])
def test_other_settings_are_recorded(name: str) -> None:
    assert not is_secret(name)
