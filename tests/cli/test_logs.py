"""Logs of jobs: in JSON, with what each line is about, wherever tasks run; the server shows the same lines."""

import json

import pytest
from starlette.testclient import TestClient

from forkpoint.operations.roots import StateRoot
from forkpoint.server.access import Tokens
from forkpoint.server.app import ServerOptions, application

TALKING = """
import logging
import sys
import forkpoint as fp

log = logging.getLogger("app")
logging.basicConfig(level=logging.INFO, format="%(message)s")
log.info("begins")


def say(number):
    log.info("saw %d", number)
    print("printed", number)
    return number


def count(number, state):
    if state is None:
        print("first", number, file=sys.stderr)
    return number, number


env = fp.StreamExecutionEnvironment.get_execution_environment().enable_checkpointing(50)
env.set_parallelism(2)
numbers = env.from_source(
    fp.CounterSource(int(sys.argv[1]) if len(sys.argv) > 1 else None, per_epoch=4),
    fp.WatermarkStrategy.no_watermarks(), "numbers",
).uid("numbers")
said = numbers.map(say, int).uid("say").key_by(lambda n: n % 2, int).map_with_state(count, int, int).uid("counts")
said.sink_to(fp.DiscardSink()).uid("out")
env.execute("talking")
"""


def lines_of(text):
    """The objects in a log; what Java says of itself before it logs is no line of ours."""
    return [json.loads(line) for line in text.splitlines() if not line.startswith("WARNING: Using incubator")]


def check(lines, run):
    about = {"job": "talking", "run": run}
    said = [each for each in lines if each["message"] == "saw 1"]
    (printed,) = (each for each in lines if each["message"] == "printed 1")
    first = [each for each in lines if each["message"].startswith("first ")]
    assert len(said) == 1
    assert said[0].items() >= {"logger": "app", "level": "INFO", "uid": "say", "subtask": printed["subtask"], **about}.items()
    assert printed.items() >= {"logger": "stdout", "level": "INFO", "uid": "say", "epoch": said[0]["epoch"], **about}.items()
    assert {each["subtask"] for each in first} == {0, 1}
    assert all(each.items() >= {"logger": "stderr", "uid": "counts", **about}.items() for each in first)
    assert next(each for each in lines if each["message"] == "begins").keys() == {"time", "level", "logger", "message"}


@pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.slow])])
def test_a_job_in_the_background_logs_json(cli, engine):
    cli.write("talking.py", TALKING)
    cli.env["FORKPOINT_LOG_FORMAT"] = "json"
    started = cli.json("run", "-d", "--engine", engine, "talking.py")
    cli.wait_epoch(3, "talking")
    with server(cli) as http:
        shown = http.get("/v1/jobs/talking/log?lines=5000").text
    cli("stop", "talking")
    with open(started["log"]) as file:
        written = file.read()
    check(lines_of(written), started["run"])
    assert len(shown.splitlines()) > 10
    assert written.startswith(shown)


def server(cli):
    root = StateRoot(str(cli.directory / ".forkpoint"))
    options = ServerOptions((root,), Tokens("secret-of-the-test", None, None), programs=cli.directory / "programs")
    return TestClient(application(options), headers={"Authorization": "Bearer secret-of-the-test"})


def test_a_supervised_job_logs_what_forkpoint_and_the_program_say(cli):
    cli.write("talking.py", TALKING)
    cli.write("forkpoint.toml", 'log-format = "json"\n')
    done = cli("supervise", "--", "talking.py", "--", "8")
    lines = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    check(lines, next(each["run"] for each in lines if "run" in each))


@pytest.mark.slow
def test_the_last_line_says_why_a_run_failed(cli):
    cli.write("failing.py", "import forkpoint\nraise ValueError('no good')\n")
    done = cli("--log-format", "json", "run", "failing.py", code=1)
    last = json.loads(done.stderr.splitlines()[-1])
    assert (last["level"], last["message"]) == ("CRITICAL", "failing.py raised ValueError: no good")
    assert "raise ValueError('no good')" in last["exception"]
    done = cli("run", "-d", "failing.py", "--log-format", "json", code=1)
    assert "raise ValueError('no good')" in done.stderr
    assert done.stderr.count("Error: failing.py raised ValueError: no good") == 1


COMMITTING = """
import logging
import sys
import forkpoint as fp
from forkpoint.contract.sink import Committer, CommittingSink

log = logging.getLogger("app")
logging.basicConfig(level=logging.INFO)


class Writer(fp.SinkWriter):
    def __init__(self):
        self.values = []

    def write(self, batch):
        self.values += batch.values

    def prepare_commit(self):
        return [self.values]


class TalkingCommitter(Committer):
    def commit(self, output, newest):
        for values in output.committables:
            for value in values:
                print("committing", value)
            log.info("committed %s", values)


class TalkingSink(CommittingSink):
    def create_writer(self, context):
        return Writer()

    def create_committer(self, context):
        return TalkingCommitter()

    def cleanup(self, uid, job, generation):
        pass


env = fp.StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
numbers = env.from_source(
    fp.CounterSource(int(sys.argv[1]), per_epoch=int(sys.argv[2])), fp.WatermarkStrategy.no_watermarks(), "numbers"
).uid("numbers")
numbers.sink_to(TalkingSink()).uid("talking")
env.execute("committing")
"""


@pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.slow])])
def test_lines_of_commits_are_about_the_sink_and_its_epoch(cli, engine):
    cli.write("committing.py", COMMITTING)
    cli.env["FORKPOINT_LOG_FORMAT"] = "json"
    done = cli("run", "--engine", engine, "committing.py", "--", "4", "2")
    lines = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    said = [each for each in lines if each["logger"] in ("app", "stdout")]
    (run,) = {each["run"] for each in said}
    assert all(each.items() >= {"job": "committing", "run": run, "uid": "talking"}.items() for each in said)
    printed = sorted((each["message"], each["epoch"]) for each in said if each["logger"] == "stdout")
    first = printed[0][1]
    assert printed == [(f"committing {number}", first + number // 2) for number in range(4)]
    assert {each["epoch"] for each in said if each["logger"] == "app"} == {first, first + 1}


def test_commits_do_not_flood_the_log(cli):
    cli.write("committing.py", COMMITTING)
    cli.env["FORKPOINT_LOG_FORMAT"] = "json"
    done = cli("run", "committing.py", "--", "5000", "5000")
    lines = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    of_sink = [each for each in lines if each.get("uid") == "talking"]
    assert [each["message"] for each in of_sink[:-1]] == [f"committing {number}" for number in range(200)]
    assert of_sink[-1]["message"].startswith("4,801 further lines of 'talking' were left out")


FLOODING = """
import logging
import forkpoint as fp

log = logging.getLogger("app")
logging.basicConfig(level=logging.INFO)


def say(number):
    log.info("saw %d", number)
    if number % 1_000 == 0:
        log.warning("a thousand: %d", number)
    return number


env = fp.StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
env.from_collection(range(5_000), int).uid("numbers").map(say, int).uid("say").sink_to(fp.DiscardSink()).uid("out")
env.execute("flooding")
log.info("ended")
"""


def test_functions_that_log_each_element_do_not_flood_the_log(cli):
    cli.write("flooding.py", FLOODING)
    done = cli("--log-format", "json", "run", "flooding.py")
    lines = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    said = [each["message"] for each in lines if each.get("uid") == "say"]
    assert [each for each in said if each.startswith("saw ")] == [f"saw {number}" for number in range(200)]
    assert [each for each in said if each.startswith("a ")] == [f"a thousand: {n}" for n in range(0, 5_000, 1_000)]
    assert said[-1].startswith("4,800 further lines of 'say' were left out")
    assert len(said) == 206
    assert lines[-1]["message"] == "ended"


def test_in_text_the_prints_of_local_functions_stay_on_stdout(cli):
    cli.write("talking.py", TALKING)
    done = cli("run", "talking.py", "--", "8")
    assert "printed 1\n" in done.stdout
    assert "saw 1\n" in done.stderr
    assert "begins\n" in done.stderr
