"""What goes wrong is told in a sentence, with an exit code that says which kind."""

import json
import re
import shutil
from pathlib import Path

import pytest
from cli_process import Cli
from click.testing import CliRunner

import forkpoint
from forkpoint.checkpoint.format import checksum
from forkpoint.cli import main
from forkpoint.cli.output import JsonOutput

RAISES = """
def inner(text):
    raise ValueError(text)


inner("boom")
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A directory whose state root holds one savepoint of the ended job ``digits``; the savepoint's path."""
    cli = Cli(tmp_path_factory.mktemp("saved"))
    cli.json("run", "-d", "digits.py")
    return cli.directory, cli.json("stop", "digits")["savepoint"]


@pytest.fixture
def ask(tmp_path, monkeypatch):
    """The command line in this process, for what starts no job."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FORKPOINT_STATE_ROOT", raising=False)

    def invoke(*args):
        result = CliRunner().invoke(main, args)
        return result.exit_code, result.stdout, result.stderr

    return invoke


# -- programs


@pytest.mark.parametrize("detached", [False, True])
def test_a_program_that_raises_is_shown_as_python_would(cli, detached):
    app = cli.write("raises.py", RAISES)
    err = cli("run", *(["-d"] if detached else []), "raises.py", code=1).stderr
    assert err.startswith(
        f'Traceback (most recent call last):\n  File "{app}", line 6, in <module>\n    inner("boom")\n'
        f'  File "{app}", line 3, in inner\n    raise ValueError(text)\nValueError: boom\n'
    ), err
    assert err.count("Error: raises.py raised ValueError: boom") == 1
    assert ("The log is" in err) == detached


@pytest.mark.parametrize(
    ("text", "args", "code", "message"),
    [
        ("x = (", [], 1, r"line 1\n.*x = \(\n.*\n.*SyntaxError: '\(' was never closed"),
        ("print('hi')", [], 1, r"app.py ended without running a job; call execute\(\)"),
        ("import sys; sys.exit(7)", [], 7, r"^$"),
        ("import sys; sys.exit('no input')", [], 1, r"no input"),
        ("import missing_module", [], 1, r"ModuleNotFoundError: No module named 'missing_module'"),
        ("", ["--foo"], 2, r"No such option '?--foo'?.* put it after --"),
        ("", ["--map", "x"], 2, r"'x' is not of the form OLD=NEW"),
        ("", ["-p", "0"], 2, r"0 is not in the range"),
        ("", ["-s", "nothing"], 5, r"no savepoint 'nothing'.*`forkpoint savepoints` lists"),
        ("", ["-s", "/nothing/here"], 5, r"/nothing/here is not a savepoint"),
    ],
)
def test_programs_without_a_job(ask, tmp_path, text, args, code, message):
    (tmp_path / "app.py").write_text(text)
    found, _, err = ask("run", "--engine", "local", *args, "app.py")
    assert found == code
    assert re.search(message, err), err
    assert "forkpoint/cli" not in err


def test_no_such_program(ask):
    code, _, err = ask("run", "nothing.py")
    assert code == 2
    assert "'nothing.py' does not exist" in err


def test_a_job_that_cannot_be_built_names_the_place(cli):
    app = cli.write("nouid.py", (cli.directory / "digits.py").read_text().replace('.uid("counts")', ""))
    err = cli("run", "nouid.py", code=1).stderr
    assert "needs a uid" in err
    assert f'at {app}:30, in <module>: env.execute("digits")' in err
    assert "Traceback" not in err
    assert "Traceback" in cli("run", "-v", "nouid.py", code=1).stderr


@pytest.mark.parametrize("detached", [False, True])
def test_a_job_that_fails(cli, detached):
    cli.write("beside.py", "def next_count(state):\n    return 1 // ((state or 0) - 3) + 4\n")
    text = (cli.directory / "digits.py").read_text().replace("env.enable_checkpointing(50)", "pass")
    cli.write("fails.py", text)
    err = cli("run", *(["-d"] if detached else []), "fails.py", code=3).stderr
    assert "the job failed: operator 'counts': the function raised ZeroDivisionError" in err
    assert err.count("the job failed") == 1
    (ended,) = cli.jobs("-a")
    assert ended["state"] == "failed"
    assert "ZeroDivisionError" in ended["reason"]
    assert "failed: operator 'counts'" in cli("savepoint", "digits", code=5).stderr


def test_a_driver_that_dies_before_its_job_runs(cli):
    cli.write("dies.py", "import os\nprint('so far', flush=True)\nos._exit(9)\n")
    err = cli("run", "-d", "dies.py", code=3).stderr
    assert err.startswith("so far\n")
    assert "ended with exit code 9 before its job ran; its log is" in err


@pytest.mark.slow
def test_a_program_that_does_not_fit_its_savepoint(cli, saved):
    _, savepoint = saved
    text = (cli.directory / "digits.py").read_text().replace('.uid("counts")', '.uid("others")')
    cli.write("changed.py", text)
    err = cli("run", "-s", savepoint, "changed.py", code=4).stderr
    assert "counts" in err
    assert "--allow-non-restored-state" in err
    moved = cli("run", "-s", savepoint, "--map", "counts=others", "changed.py", "--", "1")
    assert "finished" in moved.stderr


@pytest.mark.slow
@pytest.mark.parametrize("detached", [False, True])
def test_what_a_run_is_to_start_from_must_be_there(cli, detached):
    in_background = ["-d"] if detached else []
    err = cli("run", *in_background, "-s", "nowhere", "digits.py", code=5).stderr
    assert err.startswith("Error: there is no savepoint 'nowhere'")
    assert err.count("nowhere") == 1
    err = cli("run", *in_background, "run:0123456789ab", code=5).stderr
    assert err.startswith("Error: there is no run '0123456789ab'")


# -- jobs


def test_jobs_that_are_not_there(ask, saved, tmp_path):
    directory, _ = saved
    root = ["--state-root", str(directory / ".forkpoint")]
    for command in ("savepoint", "stop", "cancel"):
        code, _, err = ask(command, "nobody", *root)
        assert code == 5
        assert "there is no job 'nobody'" in err
        assert "there are 'digits'" in err
        code, _, err = ask(command, "digits", *root)
        assert code == 5
        assert re.search(r"job 'digits' is not running: its last run \w+ was stopped", err), err
    code, _, err = ask("stop", "nobody")
    assert code == 5
    assert f"under file://{tmp_path}/.forkpoint; there are none yet" in err
    assert ask("tree", "nobody", *root)[0] == 5
    assert ask("list") == (0, f"no running jobs under {tmp_path}/.forkpoint\n", "")


# -- savepoints


def test_a_truncated_savepoint(ask, saved, tmp_path):
    copy = shutil.copytree(saved[1], tmp_path / "copy")
    file = copy / "savepoint.json"
    file.write_bytes(file.read_bytes()[:100])
    code, _, err = ask("show", "copy")
    assert code == 1
    assert str(file) in err
    (tmp_path / "app.py").write_text("raise SystemExit('it was started')")
    code, _, err = ask("run", "-s", "copy", "app.py")
    assert code == 4
    assert str(file) in err
    assert "it was started" not in err


def test_a_savepoint_of_a_newer_format(ask, saved, tmp_path):
    copy = shutil.copytree(saved[1], tmp_path / "copy")
    file = copy / "savepoint.json"
    content = file.read_bytes()
    newer = content.replace(b'"format_version":1', b'"format_version":3')
    file.write_bytes(newer)
    (seal,) = [each for each in copy.iterdir() if each.name.startswith("savepoint.json.")]
    seal.write_text(seal.read_text().replace(checksum(content), checksum(newer)))
    code, _, err = ask("show", "copy")
    assert code == 1
    assert "format 3, this forkpoint reads formats up to 2; upgrade forkpoint" in err
    assert ask("dispose", "copy")[0] == 1
    assert file.exists()


def test_a_savepoint_whose_export_did_not_finish_is_listed_as_such(ask, saved, tmp_path):
    root = shutil.copytree(saved[0] / ".forkpoint", tmp_path / ".forkpoint")
    (savepoint,) = (root / "savepoints" / "digits").iterdir()
    (savepoint / "savepoint.json").unlink()
    found = json.loads(ask("savepoints", "--output", "json")[1])
    assert found["savepoints"] == []
    assert [(each["job"], each["unfinished"], each["path"]) for each in found["broken"]] == [("digits", True, str(savepoint))]
    assert ask("savepoints")[1].startswith("unfinished: ")
    assert ask("show", str(savepoint))[0] == 5


# -- shapes


def test_errors_in_json(ask):
    code, out, err = ask("--output", "json", "stop", "nobody")
    error = json.loads(err)["error"]
    assert (code, out) == (5, "")
    assert (error["code"], error["exit_code"], error.keys()) == ("JobNotFound", 5, {"code", "message", "exit_code"})
    code, out, err = ask("--output", "json", "run", "nothing.py")
    assert json.loads(err)["error"]["code"] == "UsageError"
    assert code == 2


def test_json_of_results(ask, saved):
    root = ["--state-root", str(saved[0] / ".forkpoint"), "--output", "json"]
    (run,) = json.loads(ask(*root, "list", "-a")[1])["jobs"]
    assert list(run) == [
        "job",
        "run",
        "state",
        "newest",
        "epoch",
        "started_ms",
        "ended_ms",
        "uptime_ms",
        "records_read",
        "late_records_dropped",
        "restarts",
        "reason",
        "doing",
        "problems",
        "parent",
        "pid",
        "machine",
        "port",
        "log",
    ]
    listed = json.loads(ask(*root, "savepoints")[1])
    (savepoint,) = listed["savepoints"]
    assert list(savepoint) == [
        "id",
        "job",
        "run",
        "epoch",
        "created_ms",
        "label",
        "note",
        "drained",
        "schedule_ms",
        "own_bytes",
        "entries",
        "bytes",
        "path",
    ]
    assert savepoint["path"] == saved[1]
    assert savepoint["entries"] == 10
    shown = json.loads(ask(*root, "show", savepoint["id"])[1])
    assert list(shown) == ["path", "entries", "bytes", "savepoint"]
    assert shown["savepoint"]["id"] == savepoint["id"]
    nodes = json.loads(ask(*root, "tree")[1])["nodes"]
    assert [each["kind"] for each in nodes] == ["savepoint", "run"]
    assert list(nodes[0]) == [
        "kind",
        "id",
        "job",
        "run",
        "parent",
        "epoch",
        "created_ms",
        "state",
        "label",
        "note",
        "drained",
        "schedule_ms",
        "path",
        "missing",
        "program",
        "emptied",
    ]
    assert nodes[0]["parent"] == {"kind": "run", "job": "digits", "id": run["run"]}


def test_show_as_text(ask, saved):
    code, out, _ = ask("show", saved[1])
    assert code == 0
    for part in (
        r"^path +/.+",
        r"^job +digits, run \w+, epoch \d+$",
        r"^parent +none",
        r"^state +10 entries",
        r"^numbers +source",
        r"^counts +map_with_state +state +long +value<long> +10 ",
        r'^numbers +\{"next": \d+\} +counter',
    ):
        assert re.search(part, out, re.MULTILINE), (part, out)


# -- places


def test_a_state_root_that_is_not_there(ask, tmp_path, monkeypatch):
    for command in ("list", "savepoints", "gc"):
        code, _, err = ask("--state-root", "typo", command)
        assert (code, err) == (
            5,
            f"Error: there is no state root {tmp_path}/typo; check the path (--state-root, FORKPOINT_STATE_ROOT)\n",
        )
        code, _, err = ask(command)
        assert (code, err) == (0, "")
    monkeypatch.setenv("FORKPOINT_STATE_ROOT", "typo")
    assert ask("list")[0] == 5


def test_a_directory_that_is_no_savepoint_is_not_searched(ask):
    code, _, err = ask("show", "/etc")
    assert code == 5
    assert err == (
        "Error: file:///etc is not a savepoint: it has no savepoint.json, which is written last; name the directory of a "
        "complete savepoint\n"
    )


@pytest.mark.parametrize("detached", [[], ["-d"]])
def test_a_place_where_nothing_can_be_written(ask, tmp_path, detached):
    (tmp_path / "app.py").write_text(
        "import forkpoint as fp\nenv = fp.StreamExecutionEnvironment.get_execution_environment()\n"
        "env.from_collection([1]).uid('in').print().uid('out')\nenv.execute('job')\n"
    )
    code, _, err = ask("--state-root", "/proc/nope", "run", "--engine", "local", *detached, "app.py")
    assert code == 1
    assert re.search(r"/proc/nope.*(cannot be created|check the path)", err), err
    assert "bug in forkpoint" not in err


def test_numbers_that_json_does_not_have(capsys):
    JsonOutput().result({"a": [float("nan"), (float("inf"), 1.5)], "b": {"c": -float("inf")}}, lambda out: None)
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail) == {
        "a": ["NaN", ["Infinity", 1.5]],
        "b": {"c": "-Infinity"},
    }


SUGGESTED = re.compile(r'`forkpoint \w[^`"]*?\{(?!shlex\.quote)[^}]*\}[^`"]*`')
NAMES_OF_COMMANDS = ("server/commands.py", "cli/packages.py")


def test_a_name_in_a_suggested_command_is_quoted_for_the_shell() -> None:
    found = [
        f"{file}: {line.strip()}"
        for file in sorted(Path(forkpoint.__file__).parent.rglob("*.py"))
        if not file.as_posix().endswith(NAMES_OF_COMMANDS)
        for line in file.read_text().splitlines()
        if SUGGESTED.search(line)
    ]
    assert not found, "\n".join(found)
