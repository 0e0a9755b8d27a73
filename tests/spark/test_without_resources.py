"""A cluster that gives no cores: the job waits for them, says so, and can be cancelled."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pyspark
import pytest

PROGRAM = """
import forkpoint as fp

env = fp.StreamExecutionEnvironment.get_execution_environment()
numbers = env.from_source(fp.CounterSource(per_epoch=1), fp.WatermarkStrategy.no_watermarks(), "n").uid("n")
numbers.key_by(lambda n: n % 3, int).map_with_state(lambda n, s: (n, s), int, int).uid("state").sink_to(fp.DiscardSink()).uid("o")
env.execute("waiting")
"""


@pytest.mark.spark
def test_a_job_without_executors_is_cancelled(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    home = Path(pyspark.__file__).parent
    master = subprocess.Popen(
        [home / "bin" / "spark-class", "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port),
         "--webui-port", "0"],
        env={**os.environ, "SPARK_HOME": str(home)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        while socket.socket().connect_ex(("127.0.0.1", port)):
            time.sleep(0.1)
        (tmp_path / "app.py").write_text(PROGRAM)
        env = {**os.environ, "SPARK_MASTER": f"spark://127.0.0.1:{port}", "FORKPOINT_ENGINE": "spark"}
        cli = [sys.executable, "-m", "forkpoint.cli", "--output", "json"]
        process = subprocess.Popen(
            [*cli, "run", "app.py"], cwd=tmp_path, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        while not (jobs := json.loads(subprocess.check_output([*cli, "list"], cwd=tmp_path, env=env))["jobs"]):
            time.sleep(0.1)
        assert jobs[0]["state"] in ("starting", "running")
        time.sleep(2)  # it has come to its first Spark job
        subprocess.check_call([*cli, "cancel", "waiting"], cwd=tmp_path, env=env)
        _, err = process.communicate()
        assert process.returncode == 0, err
        (run,) = json.loads(subprocess.check_output([*cli, "list", "-a"], cwd=tmp_path, env=env))["jobs"]
        assert run["state"] == "cancelled"
    finally:
        master.kill()
        master.wait()
