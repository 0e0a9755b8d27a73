"""User code that doesn't come back: what the job is at is told, and cancel and Ctrl-C end it."""

import re
import signal
import threading
import time

import pytest

import forkpoint as fp

pytestmark = pytest.mark.untraced

STUCK = """
import time
import forkpoint as fp
from forkpoint.driver.run import requests

requests.STUCK_SECONDS = 3.0


def loops():
    while True:
        pass


def catches_exceptions():
    while True:
        try:
            time.sleep(0.01)
        except Exception:
            pass


def sleeps():
    time.sleep(10**6)


def catches_everything():
    while True:
        try:  # once more, as it may be interrupted where the inner loop begins anew
            while True:
                try:
                    time.sleep(0.01)
                except BaseException:
                    pass
        except BaseException:
            pass


def stuck(number):
    if number == 250:
        print("STUCK", flush=True)
        HOW()
    return number


env = fp.StreamExecutionEnvironment.get_execution_environment()
env.enable_checkpointing(10)
numbers = env.from_source(fp.CounterSource(per_epoch=100), fp.WatermarkStrategy.no_watermarks(), "n").uid("numbers")
numbers.map(stuck, int).uid("the map").sink_to(fp.DiscardSink()).uid("out")
env.execute("stuck")
"""


def begin(cli, how, *args):
    """A job in the foreground that has come to where it stays."""
    cli.write("stuck.py", STUCK.replace("HOW", how))
    process = cli.start("run", *args, "stuck.py")
    assert process.stdout.readline() == "STUCK\n"
    return process


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "by"),
    [
        ("loops", "cancel"),
        ("loops", "SIGINT"),
        ("catches_exceptions", "cancel"),
        ("catches_exceptions", "SIGINT"),
        ("sleeps", "cancel"),
        ("sleeps", "SIGTERM"),
        ("catches_everything", "cancel"),
        ("catches_everything", "SIGINT"),
    ],
)
def test_cancelling_ends_user_code(cli, how, by):
    process = begin(cli, how)
    if by == "cancel":
        cli("cancel", "stuck")
    else:
        process.send_signal(getattr(signal, by))
    _, err = process.communicate()
    assert process.returncode == {"cancel": 0, "SIGINT": 130, "SIGTERM": 143}[by], err
    assert "Traceback" not in err
    if how == "catches_everything":
        said = (
            r"cancelled; the process was ended because it was still at epoch \d+, for .* in operator 'the map' \(stuck, stuck.py"
        )
        assert re.search(said, err), err
    (run,) = cli.jobs("-a")
    assert run["state"] == "cancelled"


@pytest.mark.slow
def test_what_a_savepoint_waits_for_is_told(cli):
    process = begin(cli, "sleeps")
    asked = cli.start("savepoint", "stuck")
    said = asked.stderr.readline()
    assert re.search(r"savepoint of stuck: waiting for the end of epoch \d+, for [\d.]+ s, in operator 'the map' \(stuck", said)
    assert "forkpoint cancel stuck" in said
    cli("cancel", "stuck")
    asked.communicate()
    assert asked.returncode == 3
    process.communicate()


def test_a_third_signal_ends_the_process_at_once(cli):
    process = begin(cli, "catches_everything")
    while process.poll() is None:
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)
    assert process.returncode == 130


@pytest.mark.slow
@pytest.mark.parametrize("how", ["loops", "catches_exceptions", "sleeps"])
def test_an_epochs_time_ends_user_code(cli, how):
    program = STUCK.replace("HOW", how).replace(
        "env.enable_checkpointing(10)",
        "env.enable_checkpointing(10)\n"
        "env.get_checkpoint_config().set_checkpoint_timeout(1500)\n"
        "env.set_restart_strategy(fp.RestartStrategy.none())",
    )
    cli.write("stuck.py", program)
    process = cli.start("run", "stuck.py")
    _, err = process.communicate()
    assert process.returncode == 3
    assert "took longer than the checkpoint timeout of 1500 ms" in err


ENTERED = threading.Event()


def loops(number):
    ENTERED.set()
    while True:
        pass


def test_jobs_on_other_threads_end_too(monkeypatch):
    """As in a notebook."""
    monkeypatch.setenv("FORKPOINT_ENGINE", "local")
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    numbers = env.from_source(fp.CounterSource(per_epoch=1), fp.WatermarkStrategy.no_watermarks(), "n").uid("n")
    numbers.map(loops, int).uid("map").sink_to(fp.DiscardSink()).uid("out")
    job = env.execute_async("threaded")
    ENTERED.wait()
    job.cancel().result()
    assert job.get_job_execution_result().result().status is fp.JobStatus.CANCELED
