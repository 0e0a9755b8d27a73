"""state, diff and edit: on a savepoint of a job, without starting one."""

import json
import math
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from cli_process import Cli
from click.testing import CliRunner

from forkpoint.cli import main
from forkpoint.cli.text import shown
from forkpoint.errors import ConfigError
from forkpoint.operations.saved_state.inspection import key_of
from forkpoint.types import Row, type_of
from forkpoint.types.readable import plain

KINDS = """
from datetime import timedelta
from typing import NamedTuple

import forkpoint as fp


class Total(NamedTuple):
    count: int
    sum: int


class Counts(fp.KeyedProcessFunction):
    total = fp.ValueStateDescriptor("total", Total)
    seen = fp.ListStateDescriptor("seen", int)
    parity = fp.MapStateDescriptor("by.parity", str, int)

    def process_element(self, n, ctx):
        before = self.total.value() or Total(0, 0)
        self.total.update(Total(before.count + 1, before.sum + n))
        self.seen.add(n)
        self.parity.put("odd" if n % 2 else "even", n)
        ctx.timer_service().register_processing_time_timer(10**14 + n)
        yield n


env = fp.StreamExecutionEnvironment.get_execution_environment()
numbers = env.from_source(fp.CounterSource(None, per_epoch=40), fp.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
keyed = numbers.filter(lambda n: n < 20).key_by(lambda n: n % 4, int)
keyed.process(Counts()).uid("a: counts").sink_to(fp.DiscardSink()).uid("out")
env.execute("kinds")
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A state root with one savepoint, and its path."""
    cli = Cli(tmp_path_factory.mktemp("cli"))
    cli.write("kinds.py", KINDS)
    try:
        cli.json("run", "-d", "kinds.py")
        cli.wait_epoch(2, "kinds")
        path = cli.json("stop", "kinds")["savepoint"]
    finally:
        cli.kill_all()
    return cli, path


@pytest.fixture
def run(saved):
    """The command line in this process: what it prints, or with ``code``, its error as JSON."""
    cli, _ = saved

    def call(*args, code=0):
        result = CliRunner().invoke(main, ["--state-root", str(cli.directory / ".forkpoint"), "--output", "json", *args])
        assert result.exit_code == code, result.output + result.stderr
        return json.loads(result.stdout if not code or result.stdout else result.stderr)

    def text(*args):
        return CliRunner().invoke(main, ["--state-root", str(cli.directory / ".forkpoint"), *args]).stdout

    call.text = text
    return call


def test_ls_lists_states_and_timers(run, saved):
    found = run("state", "ls", "latest")
    assert found["path"] == saved[1].removeprefix("file://")
    states = {each["state"]: each for each in found["states"]}
    assert {name: (each["kind"], each["rows"]) for name, each in states.items()} == {
        "total": ("value", 4),
        "seen": ("list", 20),
        "by.parity": ("map", 4),
        "timers": ("timers", 20),
    }
    assert states["total"]["columns"] == ["key_group", "key", "count", "sum"]
    text = run.text("state", "ls", "latest")
    assert "a: counts" in text
    assert "Total(count: long, sum: long)" in text


def test_get_shows_rows_and_keys(run):
    rows = run("state", "get", "latest", "a: counts", "total")["rows"]
    assert {row["key"]: row["value"] for row in rows} == {k: {"count": 5, "sum": 40 + 5 * k} for k in range(4)}
    one = run("state", "get", "latest", "a: counts", "seen", "3")
    assert [row["value"] for row in one["rows"]] == [3, 7, 11, 15, 19]
    assert len(run("state", "get", "latest", "a: counts", "seen", "--limit", "7")["rows"]) == 7
    assert len(run("state", "get", "latest", "a: counts", "timers", "--limit", "0")["rows"]) == 20
    assert "7 of 20 rows" in run.text("state", "get", "latest", "a: counts", "seen", "--limit", "7")
    assert "seen has no key 9" in run.text("state", "get", "latest", "a: counts", "seen", "9")


def test_a_job_that_has_stopped_has_the_state_of_its_savepoint(run):
    for state in ("total", "seen", "by.parity", "timers"):
        args = ("a: counts", state, "--limit", "0")
        assert run("state", "get", "kinds", *args)["rows"] == run("state", "get", "latest", *args)["rows"]
        args = ("a: counts", state, "3")
        assert run("state", "get", "kinds", *args)["rows"] == run("state", "get", "latest", *args)["rows"]
    sql = 'SELECT * FROM "a: counts".seen JOIN "a: counts"."by.parity" USING (key) ORDER BY ALL'
    assert run("state", "query", "kinds", sql)["rows"] == run("state", "query", "latest", sql)["rows"] != []
    assert "the first 7 rows" in run.text("state", "get", "kinds", "a: counts", "seen", "--limit", "7")
    shown = {each["state"]: (each["kind"], each["rows"]) for each in run("state", "ls", "kinds")["states"]}
    assert shown == {
        kind: (each, None) for kind, each in {"total": "value", "seen": "list", "by.parity": "map", "timers": "timers"}.items()
    }
    assert "by.parity" in run.text("state", "ls", "kinds")


def test_query_is_sql(run):
    sql = """SELECT key, sum, "by.parity".value FROM "a: counts".total JOIN "a: counts"."by.parity" USING (key)
             ORDER BY key DESC LIMIT 2"""
    found = run("state", "query", "latest", sql)
    assert (found["columns"], found["rows"]) == (["key", "sum", "value"], [[3, 55, 19], [2, 50, 18]])
    assert run.text("state", "query", "latest", sql).split() == [
        "key",
        "sum",
        "value",
        "3",
        "55",
        "19",
        "2",
        "50",
        "18",
    ]


def test_two_columns_of_one_name_are_both_shown(run):
    sql = 'SELECT a.key, a.sum, b.key FROM "a: counts".total a JOIN "a: counts".total b USING (key) ORDER BY 1 LIMIT 1'
    found = run("state", "query", "latest", sql)
    assert (found["columns"], found["rows"]) == (["key", "sum", "key"], [[0, 40, 0]])


def test_edit_and_diff(run, saved, tmp_path):
    made = run(
        "edit",
        "latest",
        "--filter",
        "a: counts.total: key < 2",
        "--filter",
        "a: counts.timers: key = 0",
        "--remove-state",
        "a: counts.by.parity",
        "--rename-uid",
        "a: counts=counts",
        "--set-position",
        'numbers={"next": 5}',
        "--max-parallelism",
        "8",
        "--label",
        "short",
        "--to",
        str(tmp_path / "new"),
    )
    assert made["savepoint"] == str(tmp_path / "new")
    states = {each["state"]: each["rows"] for each in run("state", "ls", str(tmp_path / "new"))["states"]}
    assert states == {"total": 2, "seen": 20, "timers": 5}
    back = run("edit", made["savepoint"], "--rename-uid", "counts=a: counts", "--to", str(tmp_path / "back"))["savepoint"]
    found = run("diff", saved[1], back, "--exit-code", code=1)
    assert not found["same"]
    changes = {each["state"]: (each["outcome"], each["removed"]) for each in found["states"]}
    assert changes == {
        "total": ("changed", 2),
        "seen": ("same", 0),
        "by.parity": ("removed", 4),
        "timers": ("changed", 15),
    }
    assert found["positions"][0]["after"]["position"] == {"next": 5}
    assert found["max_parallelism"] == {"before": 128, "after": 8}
    text = run.text("diff", saved[1], back, "--samples", "1")
    assert "- a: counts.total  key=" in text
    assert "position of numbers" in text
    assert "1 of 4 states are the same" in text
    assert run("diff", back, back, "--exit-code")["same"]


def test_an_edited_savepoint_is_the_latest_and_in_the_tree(run, saved):
    path = saved[1]
    made = run("edit", path, "--remove-uid", "a: counts")
    assert run("state", "ls", "latest")["path"] == made["savepoint"]
    nodes = {node["id"]: node for node in run("tree", "kinds")["nodes"]}
    assert nodes[made["id"]]["parent"] == {"kind": "savepoint", "job": None, "id": made["parent"]}
    assert "edited" in run.text("tree")
    assert "made from it" in run("dispose", path, code=1)["error"]["message"]
    run("dispose", made["savepoint"])


def test_errors_say_what_there_is(run, saved, tmp_path):
    assert "did you mean 'seen'" in run("state", "get", "latest", "a: counts", "sen", code=5)["error"]["message"]
    assert run("state", "ls", "nowhere", code=5)["error"]["code"] == "SavepointNotFound"
    assert run("state", "get", "latest", "a: counts", "seen", "x", code=1)["error"]["code"] == "ConfigError"
    assert "totl" in run("state", "query", "latest", 'SELECT * FROM "a: counts".totl', code=5)["error"]["message"]
    assert run("edit", "latest", "--filter", "a: counts.seen", code=2)["error"]["code"] == "UsageError"
    assert run("edit", "latest", "--filter", "a: counts.seen: valu > 1", code=1)["error"]["code"] == "EditRefused"
    assert run("edit", "latest", "--rename-uid", "a", code=2)["error"]["exit_code"] == 2
    assert "given twice" in run("edit", "latest", "--rename-uid", "a=b", "--rename-uid", "a=c", code=2)["error"]["message"]
    assert run("edit", "latest", "--remove-state", "a: counts", code=2)["error"]["code"] == "UsageError"
    assert run("edit", "latest", "--set-position", "numbers={", code=2)["error"]["code"] == "UsageError"
    assert "'numbers'" in run("edit", "latest", "--remove-position", "number", code=5)["error"]["message"]
    assert run("edit", "latest", "--to", saved[1], code=1)["error"]["code"] == "AlreadyExists"
    (tmp_path / "savepoint.json").write_text("{")
    assert run("state", "ls", str(tmp_path), code=1)["error"]["code"] == "SavepointCorrupt"


@pytest.mark.parametrize(
    ("text", "of", "key"),
    [
        ("5", int, 5),
        ("5", str, "5"),
        ("2.5", float, 2.5),
        ('["a", 1]', tuple[str, int], ("a", 1)),
        ("1.10", Decimal, Decimal("1.10")),
        ("-9223372036854775808", int, -(2**63)),
        ("9223372036854775808", Any, 2**63),
        ("5", Any, 5),
        ('"5"', Any, "5"),
        ("five", Any, "five"),
        ('["a", 1]', Any, ["a", 1]),
        ("1.5", Any, 1.5),
        ("12345678-1234-5678-1234-567812345678", UUID, UUID(int=0x12345678123456781234567812345678)),
    ],
)
def test_keys_as_people_write_them(text, of, key):
    found = key_of(text, type_of(of))
    assert (repr(found), type(found)) == (repr(key), type(key))


@pytest.mark.parametrize(
    ("text", "of", "name"),
    [
        ("x", int, "LONG"),
        ("01", int, "LONG"),
        ("1.5", int, "LONG"),
        (str(2**63), int, "LONG"),
        (str(-(2**63) - 1), int, "LONG"),
        (f'[{2**63}, "a"]', tuple[int, str], "tuple"),
        ("[1]", tuple[int, str], "tuple"),
        ("one", Decimal, "BIG_DEC"),
        ("\ud800", int, "LONG"),
    ],
)
def test_what_is_no_key(text, of, name):
    with pytest.raises(ConfigError, match=f"is not a key of type {name}") as refused:
        key_of(text, type_of(of))
    assert "Expected" not in str(refused.value)


def test_values_as_people_read_them():
    assert plain({1: (b"\0", Row(a=1))}) == [[1, ["AA==", {"a": 1}]]]
    assert plain([math.nan, {"a": -math.inf}, Row(b=math.inf)]) == ["NaN", {"a": "-Infinity"}, {"b": "Infinity"}]
    assert shown({"a": [1]}) == '{"a": [1]}'
    assert (shown(None), shown("text"), len(shown("x" * 1000))) == ("", "text", 121)
