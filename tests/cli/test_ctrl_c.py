"""Ctrl-C of a program that Python runs, without the command line."""

import signal
import subprocess
import sys

from programs import Python

PROGRAM = """
import forkpoint as fp

def shown(number):
    if number == 10:
        print("RUNNING", flush=True)
    return number

env = fp.StreamExecutionEnvironment.get_execution_environment()
env.enable_checkpointing(10)
numbers = env.from_source(fp.CounterSource(per_epoch=10), fp.WatermarkStrategy.no_watermarks(), "n").uid("numbers")
numbers.map(shown, int).uid("shown").sink_to(fp.DiscardSink()).uid("out")
"""


def new_python(arguments, **options):
    return subprocess.Popen([sys.executable, *arguments], **options)


def interrupted(cli, rest, python=Python):
    cli.write("app.py", PROGRAM + rest)
    process = python(
        ["app.py"],
        cwd=cli.directory,
        env=cli.env | {"FORKPOINT_STATE_ROOT": ".forkpoint"},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout.readline() == "RUNNING\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    return process.returncode, out, err


def test_it_ends_the_job_and_the_program_with_one_line(cli):
    code, _, err = interrupted(cli, "env.execute('plain')\nprint('not reached')\n", new_python)
    assert code == 130
    (run,) = cli.jobs("-a")
    assert err == f"job 'plain', run {run['run']}: cancelled\n"
    assert run["state"] == "cancelled"


def test_a_program_can_catch_it(cli):
    code, out, err = interrupted(cli, "try:\n    env.execute('plain')\nexcept KeyboardInterrupt as e:\n    print('caught', e)\n")
    assert (code, err) == (0, "")
    assert out.startswith("caught job 'plain', run ")


def test_what_the_program_set_up_for_ctrl_c_stays(cli):
    code, out, err = interrupted(
        # Not print(), which fails if the signal comes in the middle of the program's own.
        cli,
        "import os, signal\nsignal.signal(signal.SIGINT, lambda *_: (os.write(1, b'mine\\n'), os._exit(7)))\n"
        "env.execute('plain')\n",
    )
    assert (code, out, err) == (7, "mine\n", "")
