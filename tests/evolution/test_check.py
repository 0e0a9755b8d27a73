"""`forkpoint check`: what a restore would do, told without starting anything."""

from __future__ import annotations

import json
import os
import resource
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from evolution_jobs import STOP, life

from forkpoint.api.launch import Launch, ProgramStopped, launching
from forkpoint.cli import main
from forkpoint.driver.start.program_check import check_program
from forkpoint.errors import RestoreRefused
from forkpoint.graph.options import RestoreOptions
from forkpoint.savepoint.format.opened_savepoint import open_savepoint

APP = """
import sys
from typing import Annotated, NamedTuple

import forkpoint as fp
from forkpoint.testing import TestSource


class Sums(NamedTuple):
{fields}


class Keeper(fp.KeyedProcessFunction):
    sums = fp.ValueStateDescriptor("sums", Sums)
    {more}

    def process_element(self, value, ctx):
        self.sums.update(Sums(1, 2))
        yield value


def build(env, source):
    stream = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "in").uid("in")
    pairs = stream.map(lambda v: {value}, {type})
    first = pairs.key_by(lambda v: v[0], str).reduce(lambda a, b: a).uid("largest"){migration}
    return first.key_by(lambda v: v[0], str).process(Keeper()).uid("{keeper}")


if __name__ == "__main__":
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    build(env, TestSource([("a", 1)])).sink_to(fp.DiscardSink()).uid("out")
    print("about to run")
    env.execute("test")
    print("never", file=sys.stderr)
    raise SystemExit("the program went on behind execute()")
"""
V1 = {
    "fields": "    count: int\n    total: int",
    "more": "last = fp.ValueStateDescriptor('last', int)",
    "value": "v",
    "type": "tuple[str, int]",
    "migration": "",
    "keeper": "keeper",
}
V2 = V1 | {
    "fields": "    n: Annotated[int, fp.RenamedFrom('count')]\n    total: float\n    best: int = 3",
    "value": "(*v, 0)",
    "type": "tuple[str, int, int]",
    "migration": ".migrate_state(1, lambda pair: (*pair, 0))",
    "more": "fresh = fp.ListStateDescriptor('fresh', str)",
}
DROPPING = {"fields": "    count: int\n    sum: int = 0"}


class Checker:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.root = directory / "root"

    def app(self, **parts: str) -> Path:
        path = self.directory / "app.py"
        path.write_text(APP.format(**(V1 | parts)))
        return path

    def save(self, app: Path) -> str:
        build = runpy.run_path(str(app))["build"]
        savepoint = life(self.root, build, [("a", 1), ("b", 2), STOP]).savepoint
        assert savepoint is not None
        return savepoint

    def __call__(self, *args: str) -> tuple[int, str, str]:
        result = CliRunner().invoke(main, ["check", *args, "--state-root", str(self.root)])
        return result.exit_code, result.stdout, result.stderr

    def rows(self, *args: str) -> tuple[int, bool, dict[str, str], dict[str, str]]:
        code, out, err = self(*args, "--output", "json")
        assert not err
        found = json.loads(out[out.index("{") :])
        by_name = {f"{row['subject']} {row['uid']}/{row['name']}".rstrip("/"): row for row in found["rows"]}
        return (
            code,
            found["fits"],
            {name: row["outcome"] for name, row in by_name.items()},
            {name: row["why"] for name, row in by_name.items()},
        )


@pytest.fixture
def check(tmp_path, monkeypatch):
    monkeypatch.delenv("FORKPOINT_STATE_ROOT", raising=False)
    return Checker(tmp_path)


def files(root: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in root.rglob("*")}


def test_a_program_fits_its_own_savepoint(check):
    check.save(check.app())
    before = files(check.root)
    code, fits, outcomes, _ = check.rows(str(check.app()))
    assert (code, fits) == (0, True)
    states = ["largest/state", *(f"keeper/{name}" for name in ("sums", "last", "_event_timers", "_processing_timers"))]
    operators = ["in", "map", "largest", "keeper"]
    assert outcomes == dict.fromkeys(
        [*(f"state {name}" for name in states), *(f"operator {uid}" for uid in operators), "source in"], "restored"
    )
    assert files(check.root) == before
    assert "FORKPOINT_STATE_ROOT" not in os.environ  # what the program got is not left behind


def test_everything_that_changes_is_told(check):
    savepoint = check.save(check.app())
    app = str(check.app(**V2))
    code, fits, outcomes, why = check.rows(app, "-s", savepoint, "-n")
    assert (code, fits) == (0, True)
    assert outcomes["state largest/state"] == "migrated"
    assert why["state largest/state"] == "1 migration of values"
    assert outcomes["state keeper/sums"] == "migrated"
    for part in ("count renamed to n", "total LONG → DOUBLE", "best added as 3"):
        assert part in why["state keeper/sums"]
    assert outcomes["state keeper/fresh"] == "new"


def test_what_is_refused_has_exit_code_4_and_says_why(check):
    check.save(check.app())
    app = str(check.app(type="tuple[str, int, int]", value="(*v, 0)", keeper="other"))
    code, fits, outcomes, why = check.rows(app)
    assert (code, fits) == (4, False)
    assert outcomes["state largest/state"] == "refused"
    assert "tuple[STRING, LONG] and is declared as tuple[STRING, LONG, LONG]" in why["state largest/state"]
    assert outcomes["state keeper/sums"] == "refused"
    code, out, _ = check(app)
    assert code == 4
    assert "refused: 2 problems" in out
    code, _, outcomes, _ = check.rows(app, "--map", "keeper=other")
    assert outcomes["state other/sums"] == "restored"
    assert code == 4


def test_a_field_that_would_be_lost_is_refused_unless_that_is_allowed(check):
    """It was told as a change like any other, with exit code 0."""
    check.save(check.app())
    app = str(check.app(**DROPPING))
    code, fits, outcomes, why = check.rows(app)
    assert (code, fits, outcomes["state keeper/sums"]) == (4, False, "refused")
    for part in (
        "would lose total (if it is sum now, annotate that with RenamedFrom('total'))",
        "--allow-non-restored-state",
    ):
        assert part in why["state keeper/sums"]
    code, fits, outcomes, why = check.rows(app, "-n")
    assert (code, fits, outcomes["state keeper/sums"]) == (0, True, "migrated")
    assert "total dropped" in why["state keeper/sums"]


@pytest.mark.parametrize(
    ("parts", "fits"),
    [
        ({}, True),
        (V2, True),
        ({"type": "fp.Types.ANY()"}, True),
        ({"keeper": "other"}, False),
        ({"type": "Sums"}, False),
        (DROPPING, False),
    ],
)
def test_check_and_run_decide_alike(check, parts, fits):
    savepoint = check.save(check.app())
    options = ["-n"] if parts is V2 else []
    app = check.app(**parts)
    code, _, outcomes, _ = check.rows(str(app), "-s", savepoint, *options)
    assert code == (0 if fits else 4)

    def run() -> None:
        build = runpy.run_path(str(app))["build"]
        restore = RestoreOptions(savepoint, allow_non_restored=bool(options))
        life(check.root, build, [("a", 1), ("b", 2), STOP], restore=restore)

    if fits:
        run()
        return
    with pytest.raises(RestoreRefused) as refused:
        run()
    told = [name.removeprefix("state ") for name, outcome in outcomes.items() if outcome == "refused"]
    assert told
    assert all(name in str(refused.value) for name in told)


def test_problems_of_the_program_and_the_savepoint(check):
    check.save(check.app())
    app = check.app()
    assert check(str(app), "-s", "nowhere")[0] == 5
    assert check(str(app), "--name", "unknown")[0] == 5
    app.write_text("print('no job')")
    code, _, err = check(str(app))
    assert code == 1
    assert "without running a job" in err
    app.write_text("1 / 0")
    code, _, err = check(str(app))
    assert code == 1
    assert "ZeroDivisionError" in err


def test_inspecting_ends_the_program_where_it_would_run(check):
    seen: list[Any] = []
    app = check.app()
    with launching(Launch(inspect=seen.append)), pytest.raises(ProgramStopped):
        runpy.run_path(str(app), run_name="__main__")
    (job,) = seen
    assert job.name == "test"
    assert {"in", "largest", "keeper"} <= set(job.graph.by_uid)
    plan = check_program(job.graph, open_savepoint(check.save(app)).savepoint)
    assert not plan.refused


WIDE = """
import forkpoint as fp


class Keeper(fp.KeyedProcessFunction):
    a = fp.ValueStateDescriptor("a", tuple[str, int])
    b = fp.MapStateDescriptor("b", str, float)

    def process_element(self, value, ctx):
        self.a.update(("x", 1))
        self.b["x"] = 1.0
        yield value


def build(env, source):
    stream = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "in").uid("in")
    return [stream.key_by(lambda v: v, str).process(Keeper()).uid(f"keeper-{i}") for i in range(100)]


if __name__ == "__main__":
    from forkpoint.testing import TestSource

    env = fp.StreamExecutionEnvironment.get_execution_environment()
    for i, stream in enumerate(build(env, TestSource(["a"]))):
        stream.sink_to(fp.DiscardSink()).uid(f"{i}")
    env.execute("test")
"""


@pytest.mark.slow
def test_a_hundred_operators_take_less_than_two_seconds_and_no_spark(check):
    app = check.directory / "wide.py"
    app.write_text(WIDE)
    assert life(check.root, runpy.run_path(str(app))["build"], ["a", STOP]).savepoint
    program = (
        "import sys\nfrom forkpoint.cli import main\n"
        f"code = main(['check', {str(app)!r}, '--state-root', {str(check.root)!r}, '--output', 'json'], standalone_mode=False)\n"
        "assert 'pyspark' not in sys.modules\nsys.exit(code)"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FORKPOINT_")}
    _, importing = in_child("import forkpoint.cli.commands.check, forkpoint.api.environment", environment)
    output, checking = in_child(program, environment)
    found = json.loads(output)
    assert found["fits"]
    assert sum(row["subject"] == "operator" and row["uid"].startswith("keeper") for row in found["rows"]) == 100
    assert checking < max(2.0, 3 * importing)  # seconds of CPU, which also grow where others use the processors


def in_child(program: str, environment: dict[str, str]) -> tuple[str, float]:
    """What a program prints, and the CPU seconds that it takes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
