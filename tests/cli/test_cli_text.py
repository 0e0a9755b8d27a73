import contextlib
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from forkpoint import MAX_WATERMARK, MIN_WATERMARK, Types
from forkpoint.cli import text
from forkpoint.cli.failures import Failure
from forkpoint.cli.output import JsonOutput, TextOutput
from forkpoint.operations.shapes import type_name
from forkpoint.storage.places import plain_place


@pytest.mark.parametrize(
    ("ms", "shown"),
    [
        (None, "-"),
        (0, "0.0 s"),
        (9_940, "9.9 s"),
        (59_999, "59 s"),
        (60_000, "1 m 0 s"),
        (3_599_999, "59 m 59 s"),
        (3_660_000, "1 h 1 m"),
        (90_000_000, "1 d 1 h"),
    ],
)
def test_durations(ms, shown):
    assert text.duration(ms) == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (4_200_000, "4.2 MB"), (10**12, "1.0 TB"), (10**16, "10000.0 TB")],
)
def test_sizes(count, shown):
    assert text.size(count) == shown


@pytest.mark.parametrize(
    ("ms", "shown"),
    [
        (MAX_WATERMARK, "+∞"),
        (MIN_WATERMARK, "-∞"),
        (2**61, "+∞"),
        (-(2**61), "-∞"),
        (1_234, "1234"),
        (-5, "-5"),
        (1_700_000_000_123, "2023-11-14 22:13:20.123"),
        (2**59, str(2**59)),
    ],
)
def test_watermarks(ms, shown):
    assert text.watermark(ms) == shown


def test_places():
    assert plain_place("file:///a/b%20c") == "/a/b c"
    assert plain_place("s3://bucket/a") == "s3://bucket/a"


@pytest.mark.parametrize(
    ("type", "shown"),
    [
        (Types.STRING(), "string"),
        (Types.LIST(Types.LONG()), "list<long?>"),
        (Types.MAP(Types.STRING(), Types.DOUBLE()), "map<string, double?>"),
        (Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.STRING()]), "Row(a: int?, b: string?)"),
    ],
)
def test_types(type, shown):
    assert type_name(type.describe()) == shown


HOSTILE = "\x1b[2Jred\x07\r\x9b31m\u202egnp\u2066\u2028\x00\x7f\ud800"
names = st.text(st.one_of(st.characters(), st.sampled_from(HOSTILE)))


def shown(name: str, output: TextOutput | JsonOutput) -> str:
    """All that a command can show of a name."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        output = type(output)()

        def show(out: TextOutput) -> None:
            out.line(name)
            out.line(Text(name, "red"))
            out.table([name], [[name], [Text(name, "red")]])

        output.result({"name": name, name: 1}, show)
        output.event("running", {"job": name}, f"job {name}: running")
        output.failure(Failure("JobFailed", f"it failed: {name}", 3, f"Traceback of {name}"))
        output.remark(name)
    return out.getvalue() + err.getvalue()


@given(names)
def test_names_do_nothing_to_a_terminal(name):
    for output in (TextOutput(), JsonOutput()):
        found = shown(name, output)
        assert not set(found) & set(HOSTILE) - set("[2Jred31mgnp")
        assert all(c.isprintable() or not c.isascii() or c in "\n\t" for c in found)
        found.encode()


@given(names)
def test_json_says_what_it_said(name):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        JsonOutput().result({"name": name}, lambda out: None)
    assert json.loads(out.getvalue()) == {"name": name}


def test_plain_names_stay_as_they_are():
    for name in ("Größe", "名前", "a\tb", "😀 é"):
        assert text.visible(name) == name
    assert text.visible(HOSTILE[:4]) == "\\x1b[2J"
    assert text.visible_cell("a\nb\tc") == "a\\nb\\tc"
