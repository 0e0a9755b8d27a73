"""`execution.allow-pickle`: objects without a typed form are pickled, savepoints say so, and nobody loads them without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import forkpoint as fp
from forkpoint.api.launch import Launch
from forkpoint.cli import main
from forkpoint.errors import RestoreRefused, TypeNotSupported
from forkpoint.state_processor import SavepointReader
from forkpoint.testing import Eof, run_local
from forkpoint.types import Types
from forkpoint.types.lookup import Program, values_of

LOADED: list[str] = []
ALLOWED = {"allow_pickle": True}


class Plain:
    def __init__(self, name: str) -> None:
        self.name = name

    def __setstate__(self, state: dict[str, Any]) -> None:
        LOADED.append(state["name"])
        self.__dict__.update(state)


class Keep(fp.KeyedProcessFunction):
    seen = fp.ListStateDescriptor("seen", Types.PICKLED_BYTE_ARRAY())

    def process_element(self, name: str, ctx: Any) -> Any:
        self.seen.add(Plain(name))
        yield [each.name for each in self.seen.get()]


class KeepInOpen(Keep):
    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_list_state(Keep.seen)


KeepInOpen.seen = None  # type: ignore[assignment]


def job(function: type[Keep] = Keep) -> Any:
    def build(env: Any, source: Any) -> Any:
        names = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "names").uid("names")
        return names.key_by(lambda _: 0, int).process(function()).uid("keep")

    return build


@pytest.mark.parametrize("function", [Keep, KeepInOpen])
def test_pickles_are_written_and_loaded_only_where_that_is_allowed(tmp_path: Path, function: type[Keep]) -> None:
    with pytest.raises(TypeNotSupported, match=r"'keep'.*'seen'.*Plain.*make it a dataclass.*execution\.allow-pickle"):
        run_local(job(function), ["a"])

    first = run_local(job(function), ["a", "b", Eof(savepoint=True)], state_root=tmp_path, options=ALLOWED)
    assert first.output == [["a"], ["a", "b"]]
    LOADED.clear()

    inputs = ["a", "b", Eof(savepoint=True), "c"]
    for restore in (first.savepoint, None):  # None: the newest checkpoint
        with pytest.raises(RestoreRefused, match=r"seen.*may hold pickles.*set execution\.allow-pickle = true"):
            run_local(job(function), inputs, state_root=tmp_path, restore=restore)
    assert not LOADED
    more = run_local(job(function), inputs, state_root=tmp_path, restore=first.savepoint, options=ALLOWED)
    assert more.output == [["a", "b", "c"]]


def test_a_savepoint_says_that_it_holds_pickles_and_readers_do_not_load_them(tmp_path: Path) -> None:
    plain = run_local(job_of_text, ["a", Eof(savepoint=True)], state_root=tmp_path / "plain", options=ALLOWED)
    pickled = run_local(job(), ["a", Eof(savepoint=True)], state_root=tmp_path / "pickled", options=ALLOWED)
    LOADED.clear()

    shown = CliRunner().invoke(main, ["show", pickled.savepoint]).output
    assert "pickles      possible in keep/seen\n" in shown
    assert "pickles" not in CliRunner().invoke(main, ["show", plain.savepoint]).output
    (row,) = SavepointReader.read(pickled.savepoint).state("keep", "seen").rows()
    assert str(row.value) == f"<pickle of {__name__}.Plain>"
    got = CliRunner().invoke(main, ["state", "get", pickled.savepoint, "keep", "seen"]).output
    assert "<pickle of" in got
    assert not LOADED


def job_of_text(env: Any, source: Any) -> Any:
    names = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "names").uid("names")
    return names.key_by(lambda name: name, str).map_with_state(lambda name, n: (name, (n or 0) + 1), int).uid("counts")


def test_results_are_loaded_where_that_is_allowed() -> None:
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.allow-pickle": "true"})
    env.launch = Launch(options={"engine": "local"})
    assert [each.name for each in env.from_collection([Plain("a")]).execute_and_collect()] == ["a"]
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.launch = Launch(options={"engine": "local"})
    with pytest.raises(TypeNotSupported, match="Plain"):
        list(env.from_collection([Plain("a")]).execute_and_collect())


def test_a_pickle_in_a_value_is_not_loaded() -> None:
    with values_of(Program(allow_pickle=True)):
        data = Types.ANY().encode([Plain("x")])
    LOADED.clear()
    with pytest.raises(TypeNotSupported, match=r"a pickle of .*Plain"):
        Types.ANY().decode(data)
    assert not LOADED
    with values_of(Program(allow_pickle=True)):
        assert Types.ANY().decode(data)[0].name == "x"
