"""What ``execute_and_collect`` returns is what was emitted: values, types and classes, over every operator."""

from __future__ import annotations

import dataclasses
import enum
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, Optional

import msgspec
import pytest
import type_strategies as ts
from hypothesis import given
from hypothesis import strategies as st

import forkpoint as fp
from example_counts import examples
from forkpoint.api.launch import Launch


def collected(values: list[Any], of: Any, change: Callable[[Any], Any], engine: str = "local") -> list[Any]:
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    env.launch = Launch(options={"engine": engine})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no state root is set
        return list(change(env.from_collection(values, of)).execute_and_collect())


@examples(20)
@given(st.data())
def test_values_of_any_declared_type_come_back_as_they_were_emitted(data):
    annotation, strategy = data.draw(ts.types)
    values = data.draw(st.lists(strategy, min_size=1, max_size=3))
    found = collected(values, annotation, lambda s: s.filter(lambda v: True).map(lambda v: v, annotation))
    assert [ts.exact(value) for value in found] == [ts.exact(value) for value in values]


class Status(enum.Enum):
    NEW = 1
    PAID = 2


class Mixed(enum.Enum):
    A = (1, 2)
    B = None


@dataclasses.dataclass(frozen=True)
class Order:
    key: str
    status: Status
    mixed: tuple[Mixed, ...]
    before: Optional[Status]  # noqa: UP045


class Named(NamedTuple):
    key: str
    status: Status
    mixed: tuple[Mixed, ...]
    before: Optional[Status]  # noqa: UP045


class Built(msgspec.Struct, frozen=True):
    key: str
    status: Status
    mixed: tuple[Mixed, ...]
    before: Status | None


WINDOW = fp.TumblingEventTimeWindows.of(1000)
OPERATORS: dict[str, Callable[[Any], Any]] = {
    "filter": lambda s: s.filter(lambda v: True),
    "map": lambda s: s.map(lambda v: v, s.get_type()),
    "reduce": lambda s: s.key_by(lambda v: v.status, Status).reduce(lambda a, b: b),
    "sum by enum": lambda s: s.key_by("status").agg(n=fp.Count(), all=fp.Collect("before"), last=fp.Max("key")),
    "union": lambda s: s.union(s.map(lambda v: v.status, Status)),
    "window": lambda s: (
        s.assign_timestamps_and_watermarks(
            fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda v, _: 5)
        )
        .key_by(lambda v: v.status, Status)
        .window(WINDOW)
        .reduce(lambda a, b: b)
    ),
}


def expected(values: list[Any], name: str) -> list[Any]:
    if name == "sum by enum":
        return [(v.status, 1, [v.before] if v.before else [], v.key) for v in values]
    return values + [v.status for v in values] if name == "union" else values


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("cls", [Order, Named, Built])
def test_members_of_enums_and_records_come_back_over_every_operator(cls, name):
    values = [cls("a", Status.PAID, (Mixed.A, Mixed.B), None), cls("b", Status.NEW, (), Status.PAID)]
    found = collected(values, cls, OPERATORS[name])
    key: Callable[[Any], str] = repr
    assert sorted(map(ts.exact, map(_plain, found)), key=key) == sorted(
        map(ts.exact, map(_plain, expected(values, name))), key=key
    )
    if name not in ("sum by enum", "union"):
        assert {type(value) for value in found} == {cls}


def _plain(value: Any) -> Any:
    return tuple(value) if type(value).__name__ == "Aggregated" else value


@pytest.mark.parametrize("form", ["json", "parquet", "csv"])
def test_members_of_enums_that_a_file_has_come_back(tmp_path, form):
    class Flat(NamedTuple):
        key: str
        status: Status
        before: Optional[Status]  # noqa: UP045

    values = [Flat("a", Status.PAID, None), Flat("b", Status.NEW, Status.PAID)]
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.launch = Launch(options={"engine": "local"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        env.from_collection(values, Flat).sink_to(getattr(fp.FileSink, form)(str(tmp_path / "out"), Flat))
        env.execute()
        source = getattr(fp.FileSource, form)(str(tmp_path / "out"), Flat, bounded=True)
        stream = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "files")
        found = list(stream.execute_and_collect())
    assert sorted(map(repr, found)) == sorted(map(repr, values))
    assert {type(value.status) for value in found} == {Status}


@pytest.mark.spark
def test_on_spark():
    values = [Order("a", Status.PAID, (Mixed.A, Mixed.B), None), Order("b", Status.NEW, (), Status.PAID)]
    found = collected(values, Order, OPERATORS["reduce"], "spark")
    assert sorted(map(repr, found)) == sorted(map(repr, values))
    assert {type(value) for value in found} == {Order}
