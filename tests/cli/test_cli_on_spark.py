"""The same commands with Spark: modules beside the program reach its workers, whatever the current directory is."""

import pytest


@pytest.mark.spark
def test_a_detached_job_on_spark(cli):
    (cli.directory / "app").mkdir()
    for name in ("digits.py", "beside.py"):
        (cli.directory / name).rename(cli.directory / "app" / name)
    started = cli.json("run", "-d", "--engine", "spark", "-p", "2", "app/digits.py")
    cli.wait_epoch(2)
    path = cli.json("stop", "digits")["savepoint"]
    savepoint = cli.json("show", path)["savepoint"]
    (states,) = [each["states"] for each in savepoint["operators"] if each["uid"] == "counts"]
    assert savepoint["run"] == started["run"]
    assert states[0]["entries"] == 10
    assert savepoint["sources"]["numbers"]["position"]["next"] >= 100
