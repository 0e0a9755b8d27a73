"""The parity programs give on forkpoint what PyFlink gave when it was recorded; see docs/flink-parity.md."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import parity_programs
import pytest
from parity_programs import RECORDED, Program, encode, load, names
from parity_runs import assert_same, outputs, recorded

from forkpoint import RuntimeExecutionMode
from forkpoint.testing import run_local

Outputs = dict[str, list[Any]]


def run(program: Program, rows_an_epoch: int | None = None, parallelism: int = 1) -> Outputs:
    found = run_local(
        lambda env: outputs(program, env.set_runtime_mode(RuntimeExecutionMode[program.mode]), rows_an_epoch),
        parallelism=parallelism,
    )
    return {name: [[r.timestamp, encode(r.value)] for r in records] for name, records in found.records.items()}


def cases() -> list[Any]:
    programs = [load(name, "forkpoint") for name in names()]
    return [
        pytest.param(p.name, marks=[pytest.mark.xfail(strict=True, reason=p.departure)] if p.departure else []) for p in programs
    ]


@pytest.mark.parametrize(("rows_an_epoch", "parallelism"), [(None, 1), (7, 2)], ids=["one epoch", "epochs of 7 rows"])
@pytest.mark.parametrize("name", cases())
def test_same_results_as_pyflink(name: str, rows_an_epoch: int | None, parallelism: int) -> None:
    program = load(name, "forkpoint")
    found = run(program, rows_an_epoch, program.parallelism or parallelism)
    assert_same(program, found, recorded(program))


@pytest.mark.parametrize("name", [name for name in names() if not load(name, "forkpoint").timestamps])
def test_timestamps_are_left_out_only_where_they_differ(name: str) -> None:
    program = replace(load(name, "forkpoint"), timestamps=True)
    with pytest.raises(AssertionError):
        assert_same(program, run(program), recorded(program))


def test_every_record_has_its_program() -> None:
    assert sorted(path.stem for path in RECORDED.glob("*.json")) == names()


@pytest.mark.parametrize("line", ["import forkpoint", "from forkpoint import Types", "import pyflink.common as common"])
def test_a_program_names_only_pyflink_and_in_lines_that_can_be_rewritten(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cheating.py").write_text(f"{line}\nINPUTS = {{}}\n")
    monkeypatch.setattr(parity_programs, "PROGRAMS", tmp_path)
    with pytest.raises(SyntaxError, match="line 1"):
        load("cheating", "forkpoint")
