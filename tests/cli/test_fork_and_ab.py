"""Other jobs from a savepoint: forks with output of their own, replays, and two versions side by side."""

import json
import os
from collections import Counter

import pytest

from forkpoint.savepoint.format.opened_savepoint import open_savepoint

APP = """
import sys
from typing import NamedTuple

import forkpoint as fp


class Counted(NamedTuple):
    digit: int
    count: int


def count(number, state):
    state = (state or 0) + 1
    return Counted(number % 10, state), state


env = fp.StreamExecutionEnvironment.get_execution_environment()
env.enable_checkpointing(100)
strategy = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda n, _: n * 1000)
numbers = env.from_source(fp.CounterSource(per_epoch=40), strategy, "numbers").uid("numbers")
counted = numbers.key_by(lambda n: n % 10, int).map_with_state(count, int).uid("counts")
counted.sink_to(fp.FileSink.json("out/{job}")).uid("out")
env.execute("counts")
"""


@pytest.fixture
def replayed(cli):
    """A job that has been replayed for 100 s of event time, and the savepoint with which it stopped."""
    cli.write("app.py", APP)
    done = cli("run", "app.py", "--until", "1970-01-01T00:01:40", "--output", "json").stdout.splitlines()
    return cli, json.loads(done[-1])["savepoint"]


def rows(cli, job):
    assert not list((cli.directory / "out" / job).glob(".*"))
    files = sorted((cli.directory / "out" / job).glob("*.jsonl"))
    return Counter((row["digit"], row["count"]) for file in files for row in map(json.loads, file.read_text().splitlines()))


def counts(start, stop):
    return Counter({(n % 10, n // 10 + 1): 1 for n in range(start, stop)})


def position(cli, savepoint):  # by path or id
    place = next((p for p in cli.directory.glob(f".forkpoint/savepoints/*/{savepoint}")), savepoint)
    return open_savepoint(str(place)).savepoint.sources["numbers"].position["next"]


@pytest.mark.slow
def test_forks_and_replays(replayed):
    cli, first = replayed
    assert position(cli, first) == 102  # 100 s have passed with the element of 101 s
    assert rows(cli, "counts") == counts(0, 102)

    cli.json("run", "-d", "app.py")
    cli.wait_epoch(10, "counts")
    forked = cli.json("fork", "counts", "app.py", "--name", "now", "-d")
    last = cli.json("stop", "counts")["savepoint"]
    cli.json("stop", "now")
    nodes = {node["id"]: node for node in cli.look("tree")["nodes"]}
    origin = nodes[nodes[forked["run"]]["parent"]["id"]]
    assert (origin["job"], origin["note"]) == ("counts", "where now was forked")
    assert rows(cli, "now") == counts(position(cli, origin["id"]), sum(rows(cli, "now").values()) + position(cli, origin["id"]))

    cli("fork", first, "app.py", "--name", "again", "--until", os.path.basename(last))
    assert rows(cli, "again") == counts(102, position(cli, last))
    again = [each for each in cli.look("savepoints")["savepoints"] if each["job"] == "again"]
    assert [position(cli, each["path"]) for each in again] == [position(cli, last)]
    assert again[0]["note"] == f"replayed until savepoint {os.path.basename(last)}"

    refused = cli("fork", first, "app.py", "--name", "again", code=1).stderr
    assert "job 'again' already exists" in refused
    cli.write("fixed.py", APP.replace("out/{job}", "out/counts"))
    refused = cli("fork", first, "fixed.py", "--name", "mixed", "--until", "200000", code=3).stderr
    assert "out/counts/part-* already belongs to job 'counts', and the results of job 'mixed' would mix" in refused
    assert rows(cli, "counts") == counts(0, position(cli, last))


def test_two_versions_over_the_same_inputs(replayed):
    cli, first = replayed
    nothing = cli("ab", first, "app.py", "app.py", code=1).stderr
    assert "has read nothing since savepoint" in nothing
    cli("run", "app.py", "--until", "300000")
    before = rows(cli, "counts")
    cli.write(
        "other.py",
        APP.replace("return Counted(number % 10, state)", "return Counted(number % 10, state + (number == 163))"),
    )
    found = cli.json("ab", first, "app.py", "other.py", "--keep", "kept")
    (sink,) = found["sinks"]
    assert (sink["uid"], sink["rows_a"], sink["rows_b"], sink["key"]) == ("out", 200, 200, ["digit"])
    assert (sink["keys_same"], sink["keys_different"]) == (9, 1)
    assert sink["samples"] == [
        {"key": 3, "only_a": [{"digit": 3, "count": 17}], "only_b": [{"digit": 3, "count": 18}]},
    ]
    assert (found["same"], [state["outcome"] for state in found["states"]]) == (False, ["same"])
    assert rows(cli, "counts") == before  # neither has written to the program's own sink
    assert sorted(each.name for each in (cli.directory / "out").iterdir()) == ["counts"]
    assert (cli.directory / "kept" / "a.log").exists()

    broken = cli("ab", first, "app.py", "missing.py", code=2).stderr
    assert "missing.py" in broken
    cli.write("broken.py", APP.replace("state = (state or 0) + 1", "state = 1 // 0"))
    assert "version b (broken.py) ended with exit code 3" in cli("ab", first, "app.py", "broken.py", code=3).stderr


@pytest.mark.slow
@pytest.mark.spark
def test_two_versions_on_spark(replayed):
    cli, first = replayed
    cli.write("other.py", APP.replace("state = (state or 0) + 1", "state = (state or 0) + (2 if number == 163 else 1)"))
    found = cli.json("ab", first, "app.py", "other.py", "--until", "200000", "--engine", "spark", "-p", "2")
    (sink,) = found["sinks"]
    assert [sink[name] for name in ("rows_a", "rows_b", "keys_same", "keys_different")] == [100, 100, 9, 1]
    assert [(sample["key"], len(sample["only_a"])) for sample in sink["samples"]] == [(3, 1)]
    (state,) = found["states"]
    assert (found["same"], state["entries_a"], state["entries_b"], state["different"]) == (False, 10, 10, 1)
    assert rows(cli, "counts") == counts(0, 102)
