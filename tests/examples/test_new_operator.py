"""docs/new-operator.md to the letter: what stands there makes an operator that runs, saves its state and restores it."""

from __future__ import annotations

import sys

import pytest
from doc_blocks import ROOT, Block, blocks

import forkpoint as fp
import forkpoint.runtime.operators as operators
from forkpoint.api.streams import streams
from forkpoint.testing import Eof, OperatorHarness, run_local

PAGE = ROOT / "docs" / "new-operator.md"
MODULE, METHOD, TEST = (block for block in blocks(PAGE) if block.info == "python")
NAME = "forkpoint.runtime.operators.only_changes"


def run(block: Block, names: dict) -> dict:
    exec(compile(block.text, block.name, "exec", dont_inherit=True), names)
    return names


@pytest.fixture(autouse=True)
def _operator(tmp_path, monkeypatch):
    """The page's module lies beside the others, and its method is one of keyed streams."""
    directory = tmp_path / "operators"
    directory.mkdir()
    (directory / "only_changes.py").write_text(MODULE.text, encoding="utf-8")
    monkeypatch.setattr(operators, "__path__", [*operators.__path__, str(directory)])
    names = run(METHOD, dict(vars(streams)))
    monkeypatch.setattr(streams.KeyedStream, "only_changes", names["only_changes"], raising=False)
    yield
    del sys.modules[NAME]


def test_the_page_says_where_the_module_goes():
    assert f"`src/{NAME.replace('.', '/')}.py`" in PAGE.read_text(encoding="utf-8")


def test_the_page_s_own_test_passes(tmp_path):
    run(TEST, {})["test_the_last_value_survives_a_savepoint"](tmp_path / "state")


def test_its_state_is_checked_before_anything_runs(tmp_path):
    def job(type):
        def build(env, readings):
            stream = env.from_source(readings, fp.WatermarkStrategy.no_watermarks(), "readings").uid("readings")
            return {"changes": stream.key_by(lambda r: r[0], str).only_changes(lambda r: r[1], type).uid("changes")}

        return build

    saved = run_local(job(int), [("a", 1), Eof(savepoint=True)], state_root=tmp_path).savepoint
    assert run_local(job(float), [("a", 1)], state_root=tmp_path, job_name="wider", restore=saved).output == []
    with pytest.raises(fp.RestoreRefused, match=r"changes/last .*value type was"):
        run_local(job(str), [("a", 1)], state_root=tmp_path, job_name="other", restore=saved)


def test_a_harness_shows_its_state():
    with OperatorHarness(lambda s: s.key_by(lambda r: r[0], str).only_changes(lambda r: r[1], int)) as harness:
        harness.process_elements([(("a", 1), None), (("a", 1), None), (("b", 1), None)])
        assert harness.output == [("a", 1), ("b", 1)]
        assert harness.state("last", "a") == 1
