"""What all tests share: a Spark session (starting one takes seconds, and two can't be there at once), and which examples
the property tests look at."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from durations import UNKNOWN_S, recorded
from example_counts import examples
from files_in_memory import keep_files_in_memory

# The plugin's own fixtures, also where forkpoint was installed before it had a plugin.
from forkpoint.errors import EpochInterrupted
from forkpoint.pytest_plugin import (  # noqa: F401
    forkpoint_clock,
    forkpoint_env,
    forkpoint_harness,
    forkpoint_run,
    forkpoint_state_root,
)
from servers.jars import QUICK_JVM

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from servers.kafka import Kafka
    from servers.postgres import Postgres

keep_files_in_memory()

# A test that hangs is ended after the time in pyproject.toml; it gets longer where others want the processors, too. No test
# has a limit of its own (see patience.py).
TIMEOUT_S = 300
os.environ.setdefault("PYTEST_TIMEOUT", str(int(TIMEOUT_S * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))))

# The tests that decide whether a change may land look at the same examples each time; `make explore` looks at others.
# How long an example takes depends on what else the machine does.
UNTIMED = examples(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", UNTIMED, derandomize=True, database=None)
settings.register_profile("other", UNTIMED, print_blob=True)
settings.load_profile(os.environ.get("EXAMPLES", "same"))


def pytest_sessionstart() -> None:
    """Interrupts that meet a destructor are lost. A run repeats them, but pytest would blame another test."""
    report = sys.unraisablehook

    def reported(raised: sys.UnraisableHookArgs) -> None:
        if not issubclass(raised.exc_type, EpochInterrupted):
            report(raised)

    sys.unraisablehook = reported


def pytest_collection_finish() -> None:
    """The garbage collector need not look at thousands of tests and modules again, nor at young objects as often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first (`durations`)."""
    seconds = recorded()
    items.sort(key=lambda item: -seconds.get(item.nodeid.partition("::")[0], UNKNOWN_S))


# Tests that share a server, each in one process: a broker takes seconds to start, and a twentieth of a core when it is idle.
SHARING = {
    "kafka": (
        "tests/kafka/",
        "tests/servers/test_kafka_broker.py",
        "tests/pyflink/test_pyflink_former_kafka.py",
        "tests/parity/pyflink/test_pyflink_examples.py",
    ),
    "page": ("tests/page/",),
    "database": ("tests/database/",),
    "object stores": ("tests/object_stores/",),
    "recovery": ("tests/recovery/",),
}


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadFileScheduling

    class ByServer(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            return next((name for name, files in SHARING.items() if file.startswith(files)), file)

    return ByServer(config, log) if config.getoption("dist") == "loadfile" else None


os.environ.setdefault("SPARK_LAUNCHER_OPTS", " ".join(QUICK_JVM))

SETTINGS = {
    "spark.master": "local[2]",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": " ".join(QUICK_JVM),
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.python.daemon.module": "preloaded_daemon",
}


@pytest.fixture(scope="session")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from forkpoint.spark.session import get_session
    from programs import PATHS

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(PATHS))  # for preloaded_daemon
        spark = get_session({**SETTINGS, "spark.local.dir": str(tmp_path_factory.mktemp("spark"))})
    yield spark
    spark.stop()


@pytest.fixture(autouse=True)
def the_session_is_there_first(request: pytest.FixtureRequest) -> None:
    """A job in this process takes the session that is there, and would otherwise start one with other settings for all tests."""
    if request.node.get_closest_marker("spark") and "cluster" not in request.path.parts:
        request.getfixturevalue("session")


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A real Kafka broker, for all tests of this process: each has topics of its own (``create_topic()``)."""
    from servers.kafka import Kafka

    started = Kafka(tmp_path_factory.mktemp("kafka") / "broker")
    yield started
    started.stop()


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """A real PostgreSQL, for all tests of this process: each has tables of its own."""
    from servers.postgres import Postgres

    started = Postgres(tmp_path_factory.mktemp("postgres") / "server")
    yield started
    started.stop()
