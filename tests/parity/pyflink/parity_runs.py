"""The parity programs' inputs on forkpoint, and how their outputs are compared with the recorded ones."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from parity_inputs import Input
from parity_programs import RECORDED, Program, by_key, comparable

import forkpoint as fp
from forkpoint.testing import PAUSE, TestSource

ELEMENT = fp.Types.TUPLE([fp.Types.STRING(), fp.Types.LONG(), fp.Types.LONG(), fp.Types.LONG()])


def strategy(given: Input) -> fp.WatermarkStrategy:
    if given.bound_ms is None:
        watermarks = fp.WatermarkStrategy.no_watermarks()
    else:
        watermarks = fp.WatermarkStrategy.for_bounded_out_of_orderness(given.bound_ms)
    return watermarks.with_timestamp_assigner(lambda value, _: value[1])


def scripts(program: Program, rows_an_epoch: int | None) -> Iterator[TestSource]:
    """A source for each input; one that comes after others begins in the epoch behind their last."""
    ends: dict[str, int] = {}
    for name, given in program.inputs.items():
        begin = max((ends[other] for other in given.after), default=0)
        step = rows_an_epoch or len(given.rows)
        script: list[Any] = [PAUSE] * begin
        for start in range(0, len(given.rows), step):
            script += [*given.rows[start : start + step], PAUSE]
        ends[name] = script.count(PAUSE)
        yield TestSource(script, type=ELEMENT)


def outputs(program: Program, env: fp.StreamExecutionEnvironment, rows_an_epoch: int | None) -> dict[str, fp.DataStream]:
    """The program's output streams, in this environment."""
    sources = scripts(program, rows_an_epoch)
    streams = {
        name: env.from_source(source, strategy(given), name)
        for (name, given), source in zip(program.inputs.items(), sources, strict=True)
    }
    return program.outputs(**streams)


def recorded(program: Program) -> dict[str, list[Any]]:
    """What PyFlink gave; fails where the inputs are no longer those it was given."""
    record = json.loads((RECORDED / f"{program.name}.json").read_text())
    assert record["inputs"] == {name: given.describe() for name, given in program.inputs.items()}, (
        "the program's inputs have changed since it was recorded: make flink-parity"
    )
    outputs: dict[str, list[Any]] = record["outputs"]
    return outputs


def assert_same(program: Program, found: dict[str, list[Any]], expected: dict[str, list[Any]]) -> None:
    assert set(found) == set(expected)
    for name, values in expected.items():
        got, wanted = Counter(comparable(program, found[name])), Counter(comparable(program, values))
        assert got == wanted, (name, list((got - wanted).items())[:3], list((wanted - got).items())[:3])
        assert by_key(program, found[name]) == by_key(program, values), name
