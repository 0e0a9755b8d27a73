"""The parity programs on Spark: many of them side by side in one job, in epochs of a few rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from parity_programs import encode, load, names
from parity_runs import assert_same, outputs, recorded

import forkpoint as fp

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("session")]


class Record(fp.ProcessFunction):
    def __init__(self, program: str, output: str) -> None:
        self.place = program, output

    def process_element(self, value: Any, ctx: fp.ProcessFunction.Context) -> Iterator[str]:
        yield json.dumps([*self.place, ctx.timestamp(), encode(value)])


@pytest.mark.parametrize(
    ("mode", "every"), [("STREAMING", 5), ("BATCH", 1), pytest.param("STREAMING", 1, marks=pytest.mark.slow)]
)
def test_same_results_as_pyflink(mode: str, every: int) -> None:
    """``every``: which of the programs, all of which have run on the local engine."""
    known = {name: load(name, "forkpoint") for name in names()}
    fit = [(n, p) for n, p in known.items() if p.departure is None and p.parallelism is None and p.mode == mode]
    programs = dict(fit[::every])
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "spark"}).set_parallelism(2)
    env.set_runtime_mode(fp.RuntimeExecutionMode[mode])
    streams = {(n, o): s for n, p in programs.items() for o, s in outputs(p, env, 30).items()}
    first, *others = [stream.process(Record(*place), fp.Types.STRING()) for place, stream in streams.items()]
    found: dict[tuple[str, str], list[Any]] = {place: [] for place in streams}
    for text in first.union(*others).execute_and_collect():
        name, output, timestamp, value = json.loads(text)
        found[name, output].append([timestamp, value])
    for name, program in programs.items():
        mine = {output: records for (n, output), records in found.items() if n == name}
        assert_same(program, mine, recorded(program))
