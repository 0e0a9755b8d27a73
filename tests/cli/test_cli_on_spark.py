"""The same commands with Spark: modules beside the program reach its workers, whatever the current directory is."""

import subprocess
import sys
from pathlib import Path

import pyspark
import pytest


@pytest.mark.spark
def test_a_detached_job_on_spark(cli):
    (cli.directory / "app").mkdir()
    for name in ("digits.py", "beside.py"):
        (cli.directory / name).rename(cli.directory / "app" / name)
    started = cli.json("run", "-d", "--engine", "spark", "-p", "2", "app/digits.py")
    cli.wait_epoch(2)
    path = cli.json("stop", "digits")["savepoint"]
    savepoint = cli.look("show", path)["savepoint"]
    (states,) = [each["states"] for each in savepoint["operators"] if each["uid"] == "counts"]
    assert savepoint["run"] == started["run"]
    assert states[0]["entries"] == 10
    assert savepoint["sources"]["numbers"]["position"]["next"] >= 100


@pytest.mark.slow
@pytest.mark.spark
def test_doctor_on_one_machine(cli):
    found = cli.json("doctor", "--master", "local[2]")
    assert {check["name"] for check in found["machine"]} >= {"Python", "Java", "memory", "state root"}
    assert [host["problems"] for host in found["hosts"]] == [[]]


# It uses a session of its own, so only the settings of the process apply.
SUBMITTED = """
import sys
import forkpoint as fp
from pyspark.sql import SparkSession

conf = SparkSession.builder.getOrCreate().sparkContext.getConf()
names = ["spark.master", "spark.test.note", "spark.test.password"]
with open("seen", "a") as seen:
    print(sys.argv[1:], *(conf.get(name) for name in names), file=seen)
env = fp.StreamExecutionEnvironment.get_execution_environment().enable_checkpointing(50).set_parallelism(1)
numbers = env.from_source(fp.CounterSource(10), fp.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
numbers.sink_to(fp.DiscardSink()).uid("out")
env.execute("submitted")
"""


@pytest.mark.slow
@pytest.mark.spark
def test_a_program_of_spark_submit_runs_again_with_its_settings(cli):
    app, root = cli.write("app.py", SUBMITTED), cli.directory / ".forkpoint"
    submit = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[2]"]
    settings = ["--conf", "spark.test.note=a b", "--conf", "spark.test.password=hidden"]
    environment = {name: value for name, value in cli.env.items() if name != "SPARK_MASTER"} | {
        "FORKPOINT_STATE_ROOT": str(root),
        "FORKPOINT_ENGINE": "spark",
        "PYSPARK_PYTHON": sys.executable,
    }
    subprocess.run([*submit, *settings, str(app), "x y"], cwd=cli.directory, env=environment, check=True)
    (run,) = cli.look("list", "-a")["jobs"]
    (record,) = root.rglob("program.json")
    assert "hidden" not in record.read_text()
    app.unlink()  # it is in the record
    cli.env.pop("SPARK_MASTER", None)
    cli("run", "-s", "none", f"run:{run['run']}")
    first, again = (cli.directory / "seen").read_text().splitlines()
    assert first == "['x y'] local[2] a b hidden"
    assert again == "['x y'] local[2] a b None"
