from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from forkpoint.errors import ConfigError
from forkpoint.spark.session import QUERY_SETTINGS, find_java_home, get_session, settings


@pytest.mark.spark
def test_the_active_session_is_taken_as_it_is(session: SparkSession) -> None:
    session.conf.set("spark.sql.shuffle.partitions", "7")
    again = get_session({"spark.sql.shuffle.partitions": "9"})
    assert again is session
    assert again.conf.get("spark.sql.shuffle.partitions") == "7"


@pytest.mark.spark
def test_a_session_of_our_own_has_the_options_and_workers_with_this_python(session: SparkSession) -> None:
    sc = session.sparkContext
    assert sc.master == "local[2]"
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert sc.range(1).map(lambda _: sys.executable).collect() == [sys.executable]
    pools = sc._jsc.sc().getAllPools()
    assert {"forkpoint-epochs", "forkpoint-background"} <= {pools.apply(i).name() for i in range(pools.size())}


@pytest.mark.spark
def test_query_settings_hold_within_and_are_unset_again(session: SparkSession) -> None:
    other = session.newSession()
    name = "spark.sql.streaming.minBatchesToRetain"
    other.conf.unset(name)
    before = other.conf.get(name, None)
    with settings(other, QUERY_SETTINGS):
        assert other.conf.get(name) == QUERY_SETTINGS[name]
    assert other.conf.get(name, None) == before


LEVELS = """
from forkpoint.spark.executor import make_spark_executor

settings = {"spark.master": "local[1]", "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=4"}
executor, _ = make_spark_executor(1000, settings)
options = executor.session._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
print(*[each for each in options if "Tiered" in each])  # the last one holds
"""


@pytest.mark.slow  # for one option it starts a JVM of its own
@pytest.mark.spark
def test_the_user_s_options_override_those_of_a_job_s_jvm() -> None:
    done = subprocess.run([sys.executable, "-c", LEVELS], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["-XX:TieredStopAtLevel=1", "-XX:TieredStopAtLevel=4"]


def test_spark_connect_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://somewhere")
    with pytest.raises(ConfigError, match="unset it and set a master"):
        get_session()


def test_java_is_found_where_it_usually_is(tmp_path: Path) -> None:
    for version in ("java-17", "java-21"):
        (tmp_path / version / "bin").mkdir(parents=True)
        (tmp_path / version / "bin" / "java").touch()
    (tmp_path / "java-99").mkdir()
    assert find_java_home((str(tmp_path / "nothing"), str(tmp_path / "java-*"))) == tmp_path / "java-21"
    of_macos = tmp_path / "JavaVirtualMachines" / "jdk-21.jdk" / "Contents" / "Home"
    (of_macos / "bin").mkdir(parents=True)
    (of_macos / "bin" / "java").touch()
    assert find_java_home((str(tmp_path / "JavaVirtualMachines" / "*" / "Contents" / "Home"),)) == of_macos
    with pytest.raises(ConfigError, match="set JAVA_HOME"):
        find_java_home((str(tmp_path / "nothing" / "*"),))
