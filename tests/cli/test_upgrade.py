"""A new version in the place of the one that runs, and back again when it fails, with real processes."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest

from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.errors import JobFailed
from forkpoint.operations.launch.request import RunRequest
from forkpoint.operations.versions.replacement import Replacement
from forkpoint.operations.versions.upgrade import upgrade
from forkpoint.savepoint.format.opened_savepoint import open_savepoint
from forkpoint.storage.base import open_storage

APP = """
import sys
from typing import NamedTuple

import forkpoint as fp
import helper


class Counted(NamedTuple):
    digit: int
    count: int
    version: str


def count(number, state):
    state = (state or 0) + 1
    return Counted(number % 10, state, helper.VERSION), state


def build(env, output):
    strategy = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda n, _: n)
    numbers = env.from_source(fp.CounterSource(per_epoch=20), strategy, "numbers").uid("numbers")
    counted = numbers.key_by(lambda n: n % 10, int).map_with_state(count, int).uid("counts")
    counted.sink_to(fp.FileSink.json(output)).uid("out")


if __name__ == "__main__":
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(100)
    build(env, sys.argv[1])
    env.execute("counts")
"""

# Its own process has seen 50 numbers, so two epochs are committed, when it fails.
FAILS = APP.replace("    state = (state or 0) + 1\n", "    state = (state or 0) + 1\n    helper.check(number)\n")
FAILING_HELPER = """
VERSION = "failing"
seen = 0


def check(number):
    global seen
    seen += 1
    if seen > 50:
        raise ValueError(f"no more than {seen}")
"""


@pytest.fixture
def counting(cli):
    """The job ``counts``, running as version "v1" from app.py; the command line, and what ``run`` said."""
    cli.write("app.py", APP)
    cli.write("helper.py", 'VERSION = "v1"\n')
    return cli, cli.json("run", "-d", "app.py", "--", "out")


def rows(cli, directory="out"):
    files = sorted((cli.directory / directory).glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def check_each_once(cli, savepoint):
    """Every number up to the savepoint was counted once, and every count written once, whatever versions did it."""
    position = open_savepoint(savepoint).savepoint.sources["numbers"].position["next"]
    expected = Counter({(digit, n): 1 for digit in range(10) for n in range(1, position // 10 + 1)})
    assert Counter((row["digit"], row["count"]) for row in rows(cli)) == expected
    assert not list((cli.directory / "out").glob(".*"))
    return {row["version"] for row in rows(cli)}


def failing(cli, *args, code):
    process = cli.start(*args)
    out, err = process.communicate()
    assert process.returncode == code, f"{out}\n{err}"
    if out:
        cli.pids.append(json.loads(out).get("pid", -1))
    return (json.loads(out) if out else None), err


FIELDS = {"job", "outcome", "run", "previous_run", "savepoint", "downtime_ms", "failure", "pid", "log"}
WAYS = pytest.mark.parametrize("way", [(), ("--stop-first",)], ids=["handed over", "stopped first"])


@pytest.mark.parametrize(
    "way", [(), pytest.param(("--stop-first",), marks=pytest.mark.slow)], ids=["handed over", "stopped first"]
)
def test_a_version_that_works_stays(counting, way):
    cli, started = counting
    cli.wait_epoch(5, "counts")
    cli.write("app2.py", APP.replace("helper.VERSION", '"v2"'))
    done = cli.json("upgrade", *way, "counts", "app2.py", "--", "out")
    assert done.keys() == FIELDS
    assert (done["job"], done["outcome"], done["previous_run"], done["failure"]) == (
        "counts",
        "upgraded",
        started["run"],
        None,
    )
    assert 0 < done["downtime_ms"] < 30_000
    saved = open_savepoint(done["savepoint"]).savepoint
    assert saved.run == started["run"]
    running = cli.wait_epoch(saved.epoch + 6, "counts")
    assert (running["run"], running["pid"]) == (done["run"], done["pid"])
    assert check_each_once(cli, cli.json("stop", "counts")["savepoint"]) == {"v1", "v2"}
    nodes = {node["id"]: node for node in cli.look("tree", "counts")["nodes"]}
    assert os.path.basename(nodes[started["run"]]["program"]) == "app.py"
    assert os.path.basename(nodes[done["run"]]["program"]) == "app2.py"
    parent = os.path.basename(done["savepoint"]) if way else started["run"]
    assert nodes[done["run"]]["parent"]["id"] == parent
    states = {each["run"]: each["state"] for each in cli.look("list", "-a")["jobs"]}
    assert states == {started["run"]: "stopped", done["run"]: "stopped"}


def newest(cli):
    return History(open_storage(str(cli.directory / ".forkpoint")), JobPaths("counts")).newest()


@pytest.mark.slow
def test_schedule_and_autoscaling_of_the_command_line_go_on_unless_others_are_given(cli):
    def noted(run, option="savepoint_schedule"):
        file = cli.directory / ".forkpoint" / JobPaths("counts").program_file(run)
        return json.loads(file.read_bytes())["options"].get(option)

    cli.write("app.py", APP)
    cli.write("helper.py", 'VERSION = "v1"\n')
    options = ("--savepoint-every", "90min", "--savepoint-keep-for", "7d", "--autoscale", "2:8")
    first = cli.json("run", "-d", *options, "app.py", "--", "out")
    cli.wait_epoch(5, "counts")
    second = cli.json("upgrade", "counts", "app.py", "--watch-epochs", "1", "--", "out")
    assert noted(second["run"]) == noted(first["run"])
    assert noted(second["run"]) == {"interval_ms": 5_400_000, "keep_last": None, "keep_for_ms": 7 * 86_400_000}
    assert noted(second["run"], "autoscale") == noted(first["run"], "autoscale") == {"minimum": 2, "maximum": 8}
    asked = ("--savepoint-every", "2h", "--savepoint-keep-last", "3", "--autoscale", "1:2")
    third = cli.json("upgrade", "counts", "app.py", "--watch-epochs", "1", *asked, "--", "out")
    assert noted(third["run"]) == {"interval_ms": 7_200_000, "keep_last": 3, "keep_for_ms": None}
    assert noted(third["run"], "autoscale") == {"minimum": 1, "maximum": 2}


@pytest.mark.slow
def test_versions_keep_the_parallelism_that_the_job_was_rescaled_to(counting):
    cli, _ = counting
    cli.wait_epoch(3, "counts")
    cli("rescale", "counts", "-p", "3")
    cli.json("upgrade", "counts", "app.py", "--watch-epochs", "1", "--", "out")
    assert newest(cli).parallelism == 3
    cli.write("fails.py", FAILS)
    cli.write("helper.py", FAILING_HELPER)
    failing(cli, "upgrade", "counts", "fails.py", "-p", "4", "--output", "json", "--", "out", code=3)
    assert newest(cli).parallelism == 3
    cli.json("upgrade", "counts", "app.py", "-p", "1", "--watch-epochs", "1", "--", "out")
    assert newest(cli).parallelism == 1
    cli("cancel", "counts")


def by_python(cli, *arguments):
    """The job ``counts``, started without the command line; its process and output."""
    cli.write("app.py", APP)
    cli.write("helper.py", 'VERSION = "v1"\n')
    (cli.directory / ".forkpoint").mkdir()
    environment = cli.env | {"FORKPOINT_STATE_ROOT": str(cli.directory / ".forkpoint")}
    output = str(cli.directory / "out")
    process = subprocess.Popen([sys.executable, *arguments, output], cwd=cli.directory, env=environment)
    cli.pids.append(process.pid)
    cli.wait_epoch(3, "counts")
    return process, output


@pytest.mark.slow
def test_a_program_of_python_is_recorded_and_taken_back(cli):
    """Started from elsewhere, with a module, arguments, and the state root and engine of its environment."""
    process, output = by_python(cli, "app.py")
    cli.write("app2.py", FAILS)
    cli.write("helper.py", FAILING_HELPER)
    done, said = failing(cli, "upgrade", "counts", "app2.py", "--output", "json", "--watch-epochs", "5", "--", output, code=3)
    assert process.wait() == 0  # it was stopped
    assert done["outcome"] == "rolled-back", said
    running = cli.wait_epoch(cli.look("list")["jobs"][0]["epoch"] + 8, "counts")
    assert running["run"] == done["run"]
    nodes = {node["id"]: node for node in cli.look("tree", "counts")["nodes"]}
    assert nodes[running["run"]]["program"] == nodes[done["previous_run"]]["program"] == str(cli.directory / "app.py")
    assert check_each_once(cli, cli.json("stop", "counts")["savepoint"]) == {"v1"}


@pytest.mark.slow
def test_a_program_without_a_file_cannot_be_taken_back_so_it_is_not_upgraded(cli):
    process, output = by_python(cli, "-m", "app")
    said = cli("upgrade", "counts", "app.py", "--", output, code=1).stderr
    assert "a rollback would be impossible" in said
    assert "with `python -m`" in said
    assert cli.look("list")["jobs"][0]["state"] == "running"
    cli("cancel", "counts")
    assert process.wait() == 0


@pytest.mark.slow
@WAYS
def test_a_version_that_fails_in_its_first_epochs_leaves_nothing_behind(counting, way):
    """It even has the same file, and its module too, so that the old version is there as a record only."""
    cli, started = counting
    cli.wait_epoch(5, "counts")
    cli.write("app.py", FAILS)
    cli.write("helper.py", FAILING_HELPER)
    command = ("upgrade", *way, "counts", "app.py", "--output", "json", "--watch-epochs", "5", "--", "out")
    done, said = failing(cli, *command, code=3)
    assert (done["outcome"], done["previous_run"]) == ("rolled-back", started["run"])
    assert "no more than 51" in done["failure"]
    states = {each["run"]: each["state"] for each in cli.look("list", "-a")["jobs"]}
    assert sorted(states.values()) == ["failed", "running", "stopped", *(() if way else ("stopped",))]
    running = cli.wait_epoch(cli.look("list")["jobs"][0]["epoch"] + 8, "counts")
    assert running["run"] == done["run"]
    if not way:
        assert (done["savepoint"], running["parent"]["kind"]) == (None, "checkpoint")
        assert check_each_once(cli, cli.json("stop", "counts")["savepoint"]) == {"v1"}
        return

    by_hand = re.findall(r"old: forkpoint (.*)", said)
    assert by_hand == [f"--state-root {cli.directory}/.forkpoint run -d -s latest run:{started['run']}"]
    assert said.index(by_hand[0]) < said.index("is stopped")
    assert running["parent"]["savepoint_id"] == os.path.basename(done["savepoint"])
    assert check_each_once(cli, cli.json("stop", "counts")["savepoint"]) == {"v1"}

    (cli.directory / "elsewhere").mkdir()  # the record also serves by hand, from anywhere
    before = cli.directory
    cli.directory = before / "elsewhere"
    again = cli.json(*by_hand[0].split())
    cli.directory = before
    cli.wait_epoch(running["epoch"] + 5, "counts")
    assert again["job"] == "counts"
    assert check_each_once(cli, cli.json("stop", "counts")["savepoint"]) == {"v1"}


@pytest.mark.slow
@WAYS
def test_a_version_that_hangs_is_ended_and_taken_back(counting, way):
    cli, _ = counting
    cli.wait_epoch(3, "counts")
    cli.write("app2.py", APP.replace("    state = (state or 0) + 1\n", "    import time\n    time.sleep(60)\n    state = 1\n"))
    command = ("upgrade", *way, "counts", "app2.py", "--output", "json", "--timeout", "5", "--", "out")
    done, _ = failing(cli, *command, code=3)
    assert done["failure"] == "it did not commit its first 3 epochs within 5 s"
    cli.wait_epoch(cli.look("list")["jobs"][0]["epoch"] + 3, "counts")
    assert check_each_once(cli, cli.json("stop", "counts")["savepoint"]) == {"v1"}


def test_a_version_that_does_not_start_stops_nothing(counting):
    cli, started = counting
    cli.wait_epoch(3, "counts")
    cli.write(
        "app2.py",
        APP.replace("import helper\n", "import helper, sys\nif '--driver-report-fd' in sys.orig_argv: 1 / 0\n"),
    )
    done, said = failing(cli, "upgrade", "counts", "app2.py", "--output", "json", "--", "out", code=3)
    assert (done["outcome"], done["run"], done["pid"]) == ("rolled-back", started["run"], started["pid"])
    assert (done["savepoint"], done["downtime_ms"]) == (None, 0)
    assert "ZeroDivisionError" in done["failure"]
    assert "was never stopped" in said
    (running,) = cli.look("list")["jobs"]
    assert (running["run"], running["restarts"]) == (started["run"], 0)
    cli.wait_epoch(running["epoch"] + 3, "counts")
    assert check_each_once(cli, cli.json("stop", "counts")["savepoint"]) == {"v1"}


@pytest.mark.slow
def test_a_version_whose_functions_do_not_open_stops_nothing(counting):
    """They are opened on the engine before the new version takes over."""
    cli, started = counting
    cli.wait_epoch(3, "counts")
    model = """
class Model(fp.MapFunction):
    def open(self, context):
        raise FileNotFoundError("model.bin")

    def map(self, counted):
        return counted


def build("""
    mapped = APP.replace("\ndef build(", model).replace("counted.sink_to(", "counted.map(Model(), Counted).sink_to(")
    cli.write("app2.py", mapped)
    done, _ = failing(cli, "upgrade", "counts", "app2.py", "--output", "json", "--", "out", code=3)
    assert (done["outcome"], done["run"], done["downtime_ms"]) == ("rolled-back", started["run"], 0)
    assert "model.bin" in done["failure"]
    (running,) = cli.look("list")["jobs"]
    assert (running["run"], running["state"]) == (started["run"], "running")
    assert check_each_once(cli, cli.json("stop", "counts")["savepoint"]) == {"v1"}


@pytest.mark.slow
def test_a_driver_that_is_killed_on_trial_is_taken_back(counting):
    """So is one that dies between the hand-over and its first epoch."""
    cli, started = counting
    cli.wait_epoch(3, "counts")
    cli.write("app2.py", APP.replace("helper.VERSION", '"v2"'))
    process = cli.start("upgrade", "counts", "app2.py", "--output", "json", "--watch-epochs", "100000", "--", "out")
    while (led := cli.look("list")["jobs"][0])["run"] == started["run"] or led["state"] != "running":
        pass
    os.kill(led["pid"], signal.SIGKILL)
    out, err = process.communicate()
    assert process.returncode == 3, err
    done = json.loads(out)
    cli.pids.append(done["pid"])
    assert (done["outcome"], done["failure"]) == ("rolled-back", "its driver was killed")
    cli.wait_epoch(cli.look("list")["jobs"][0]["epoch"] + 3, "counts")
    assert check_each_once(cli, cli.json("stop", "counts")["savepoint"]) == {"v1"}


def on_trial(cli, started, *options):
    """An upgrade whose new version is on trial, and that version's run."""
    cli.wait_epoch(3, "counts")
    cli.write("app2.py", APP.replace("helper.VERSION", '"v2"'))
    process = cli.start("upgrade", "counts", "app2.py", *options, "--", "out")
    while (led := cli.look("list")["jobs"][0])["run"] == started["run"] or led["state"] != "running":
        assert process.poll() is None, process.communicate()
    cli.pids.append(led["pid"])
    return process, led


@pytest.mark.slow
def test_a_version_that_is_cancelled_on_trial_stays_cancelled(counting):
    cli, started = counting
    process, led = on_trial(cli, started, "--watch-epochs", "100000")
    cli("cancel", "counts")
    _, err = process.communicate()
    assert process.returncode == 3
    assert f"run {led['run']} of the new version was cancelled during its trial" in err
    assert cli.look("list")["jobs"] == []
    command = re.search(r"forkpoint (--state-root .*)", err).group(1).split()
    cli.pids.append(json.loads(cli("--output", "json", *command).stdout)["pid"])
    cli.wait_epoch(cli.look("list")["jobs"][0]["epoch"] + 3, "counts")
    assert check_each_once(cli, cli.json("stop", "counts")["savepoint"]) == {"v1"}


@pytest.mark.slow
@pytest.mark.untraced
def test_a_version_that_is_cancelled_as_it_takes_over_stays_cancelled(counting, monkeypatch):
    """Before anything was asked of it: its driver does not answer when the savepoint is requested."""
    cli, _ = counting
    cli.wait_epoch(3, "counts")
    cli.write("app2.py", APP.replace("helper.VERSION", '"v2"'))
    save = Replacement._save

    def cancelled_first(self, new, started, last):
        cli("cancel", "counts")
        assert new.wait_gone(60)
        return save(self, new, started, last)

    monkeypatch.setattr(Replacement, "_save", cancelled_first)
    monkeypatch.chdir(cli.directory)
    with pytest.raises(JobFailed, match="was cancelled during its trial"):
        upgrade("counts", RunRequest("app2.py", ("out",)), state_root=str(cli.directory / ".forkpoint"))
    assert cli.look("list")["jobs"] == []


@pytest.mark.slow
def test_a_version_that_is_killed_after_its_trial_is_not_undone(counting, monkeypatch):
    """Its output is published, so the old one would write it again."""
    cli, _ = counting
    cli.wait_epoch(3, "counts")
    cli.write("app2.py", APP.replace("helper.VERSION", '"v2"'))
    saved = Replacement._saved

    def killed_first(self, new, saving, started):
        while "v2" not in {row["version"] for row in rows(cli)}:
            pass
        os.kill(started.pid, signal.SIGKILL)
        return saved(self, new, saving, started)

    monkeypatch.setattr(Replacement, "_saved", killed_first)
    monkeypatch.chdir(cli.directory)
    with pytest.raises(JobFailed, match="passed its trial and published its output, and then: its driver was killed") as failed:
        upgrade("counts", RunRequest("app2.py", ("out",)), state_root=str(cli.directory / ".forkpoint"))
    monkeypatch.undo()
    command = re.search(r"forkpoint (--state-root .*)", str(failed.value)).group(1).split()
    cli.pids.append(json.loads(cli("--output", "json", *command).stdout)["pid"])
    cli.wait_epoch(cli.look("list")["jobs"][0]["epoch"] + 3, "counts")
    assert check_each_once(cli, cli.json("stop", "counts")["savepoint"]) == {"v1", "v2"}


@pytest.mark.slow
def test_the_downtime_is_right_after_a_long_trial(counting):
    """Its first epochs have been removed when it is over."""
    cli, started = counting
    process, _ = on_trial(cli, started, "--watch-epochs", "60", "--output", "json")
    began = time.monotonic()
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert json.loads(out)["downtime_ms"] < (time.monotonic() - began) * 1000 / 2


@pytest.mark.slow
@pytest.mark.parametrize("state", ["standby", "trial"])
def test_ctrl_c_leaves_one_version_and_says_which(counting, state):
    cli, started = counting
    if state == "standby":
        cli.wait_epoch(3, "counts")
        slow = APP.replace(
            "import helper\n", "import helper, sys, time\nif '--driver-report-fd' in sys.orig_argv: time.sleep(1e6)\n"
        )
        cli.write("app2.py", slow)
        process = cli.start("upgrade", "counts", "app2.py", "--", "out")
        while "app2" not in "".join(str(each) for each in (cli.directory / ".forkpoint" / "logs").glob("*")):
            assert process.poll() is None, process.communicate()
    else:
        process, led = on_trial(cli, started, "--watch-epochs", "100000")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130
    while len(jobs := cli.look("list")["jobs"]) > 1:  # a driver that has handed the job over is about to end
        time.sleep(0.05)
    (running,) = jobs
    if state == "standby":
        assert running["run"] == started["run"]
    else:
        assert running["run"] == led["run"]
        assert f"run {led['run']} of the new version continues; run {started['run']} has handed the job over to it" in err


@pytest.mark.slow
def test_the_old_driver_is_killed_while_the_new_one_prepares(counting):
    cli, started = counting
    cli.wait_epoch(3, "counts")
    cli.write("app2.py", APP.replace("helper.VERSION", '"v2"'))
    os.kill(started["pid"], signal.SIGSTOP)  # so that it does not answer the request
    process = cli.start("upgrade", "counts", "app2.py", "--", "out")
    os.kill(started["pid"], signal.SIGCONT)
    while not [each for each in cli.look("list")["jobs"] if each["state"] == "standby"]:
        pass
    os.kill(started["pid"], signal.SIGKILL)
    process.communicate()
    if not [each for each in cli.look("list")["jobs"] if each["state"] == "running"]:  # it was faster than the hand-over
        cli.json("run", "-d", f"run:{started['run']}")
    cli.wait_epoch(cli.look("list")["jobs"][0]["epoch"] + 3, "counts")
    assert check_each_once(cli, cli.json("stop", "counts")["savepoint"]) <= {"v1", "v2"}


@pytest.mark.slow
def test_a_standby_of_the_old_version_ends(counting):
    cli, _ = counting
    cli.wait_epoch(3, "counts")
    standby = cli.start("run", "--standby", "app.py", "--", "out")
    while not [each for each in cli.look("list")["jobs"] if each["state"] == "standby"]:
        pass
    cli.write("app2.py", APP.replace("helper.VERSION", '"v2"'))
    done = cli.json("upgrade", "counts", "app2.py", "--", "out")
    _, err = standby.communicate()
    assert standby.returncode == 0, err
    assert f"has handed the job over to run {done['run']}; this run ends, too" in err
    assert check_each_once(cli, cli.json("stop", "counts")["savepoint"]) == {"v1", "v2"}


@pytest.mark.slow
def test_a_version_that_does_not_fit_stops_nothing(counting):
    cli, started = counting
    cli.wait_epoch(3, "counts")
    cli.write("app2.py", APP.replace("count, int)", "count, str)"))
    done, said = failing(cli, "upgrade", "counts", "app2.py", "--output", "json", "--", "out", code=4)
    assert (done["outcome"], done["run"], done["fits"]) == ("refused", started["run"], False)
    assert [row["uid"] for row in done["rows"] if row["outcome"] == "refused"] == ["counts"]
    assert "nothing was stopped" in said
    (running,) = cli.look("list")["jobs"]
    assert (running["run"], running["state"]) == (started["run"], "running")
    assert cli.look("savepoints")["savepoints"] == []
    assert "raised IndexError" in failing(cli, "upgrade", "counts", "app.py", code=1)[1]  # without its arguments
    assert "there is no job 'other'" in cli("upgrade", "other", "app.py", code=5).stderr
    program = cli.directory / ".forkpoint" / "jobs" / "counts" / "runs" / started["run"] / "program.json"
    program.unlink()
    assert "a rollback would be impossible" in cli("upgrade", "counts", "app.py", "--", "out", code=1).stderr
    assert cli.look("list")["jobs"][0]["run"] == started["run"]


NEVER_USED = """
import forkpoint as fp


class Counts(fp.KeyedProcessFunction):
    count = fp.ValueStateDescriptor("count", int)
    unused = fp.ValueStateDescriptor("unused", int)

    def process_element(self, number, ctx):
        self.count.update((self.count.value() or 0) + 1)
        yield self.count.value()


env = fp.StreamExecutionEnvironment.get_execution_environment()
env.enable_checkpointing(50)
numbers = env.from_source(fp.CounterSource(per_epoch=20), fp.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
numbers.key_by(lambda n: n % 10, int).process(Counts(), int).uid("counts").sink_to(fp.DiscardSink()).uid("out")
env.execute("never-used")
"""


@pytest.mark.slow
def test_a_state_that_was_never_used_may_go_and_one_that_was_may_not(cli):
    """As `check` says: a checkpoint doesn't know whether a state has entries."""
    cli.write("first.py", NEVER_USED)
    cli.write("without.py", "\n".join(line for line in NEVER_USED.splitlines() if "unused" not in line))
    cli.write("other.py", NEVER_USED.replace('"count", int', '"other", int'))
    cli.json("run", "-d", "first.py")
    cli.wait_epoch(3, "never-used")
    refused = cli("upgrade", "--watch-epochs", "1", "never-used", "other.py", code=4)
    assert "nothing was stopped" in refused.stderr
    assert cli.look("savepoints")["savepoints"] == []  # the one that was looked at is gone
    assert cli.json("upgrade", "--watch-epochs", "1", "never-used", "without.py")["outcome"] == "upgraded"
    cli.json("cancel", "never-used")
