"""The aggregate function and result rows of ``agg``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from forkpoint.errors import GraphError
from forkpoint.functions.aggregators import Aggregator, WindowBound
from forkpoint.functions.base import AggregateFunction
from forkpoint.functions.windows.functions import WindowFunction
from forkpoint.types import Field, TypeInformation, Types
from forkpoint.types.kinds.containers import OptionalType
from forkpoint.types.kinds.records import RecordType, classless


class Aggregates(AggregateFunction):
    """Several aggregators as one: the accumulator is a record of their accumulators, the result a tuple of their results.

    Equal aggregators share an accumulator. ``outputs[i]``: the index of the part that computes the i-th result.
    """

    def __init__(self, aggregators: Iterable[Aggregator[Any]]) -> None:
        given = list(aggregators)
        self.parts = tuple(dict.fromkeys(given))
        self.outputs = tuple(self.parts.index(a) for a in given)

    def accumulator_type(self, elements: TypeInformation | None) -> TypeInformation:
        """A record with a field per part. Names and defaults allow parts to be added and removed between versions."""
        members: list[Field] = []
        for part in self.parts:
            of = part.accumulator_type(elements)
            empty = None if isinstance(of, OptionalType) else part.create_accumulator()
            name = part.state_name
            namesakes = sum(other.state_name == name for other in self.parts[: len(members)])
            members.append(Field(f"{name}_{namesakes + 1}" if namesakes else name, of, empty))
        return classless("namedtuple", "Accumulators", tuple(members))

    def create_accumulator(self) -> tuple[Any, ...]:
        return tuple([part.create_accumulator() for part in self.parts])

    def add(self, value: Any, accumulator: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple([part.add(value, acc) for part, acc in zip(self.parts, accumulator, strict=True)])

    def get_result(self, accumulator: tuple[Any, ...]) -> tuple[Any, ...]:
        results = [part.get_result(acc) for part, acc in zip(self.parts, accumulator, strict=True)]
        return tuple([results[i] for i in self.outputs])

    def merge(self, acc_a: tuple[Any, ...], acc_b: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple([part.merge(a, b) for part, a, b in zip(self.parts, acc_a, acc_b, strict=True)])


@dataclass(frozen=True)
class RowShape:
    """The columns of a row: the key's, then a window bound or the next result for each name.

    ``key_names``: empty for rows without a key. ``single``: whether the key is a single column. ``bounds``: window bounds
    by position among the columns after the key's.
    """

    type: RecordType
    key_names: tuple[str, ...]
    single: bool
    bounds: Mapping[int, WindowBound]

    @cached_property
    def _make(self) -> Any:
        return self.type._make

    def row(self, key: Any, window: Any, results: tuple[Any, ...]) -> Any:
        head = () if not self.key_names else (key,) if self.single else tuple(key)
        rest = list(results)
        for position, bound in sorted(self.bounds.items()):
            rest.insert(position, window.end if bound.end else window.start)
        return self._make((*head, *rest))


class WindowRows(WindowFunction):
    """Converts a window's results to a row with the key and window bounds."""

    def __init__(self, shape: RowShape) -> None:
        self.shape = shape

    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
        return [self.shape.row(key, window, results) for results in inputs]


def row_shape(
    key: tuple[tuple[str, TypeInformation], ...],
    *,
    single: bool,
    named: Mapping[str, Aggregator[Any] | WindowBound],
    elements: TypeInformation | None,
    windows: bool,
) -> tuple[Aggregates, RowShape]:
    """The aggregates and row shape for the arguments of ``agg``; GraphError for invalid ones."""
    if not named:
        raise GraphError("agg() without aggregates; give at least one, as in agg(n=fp.Count())")
    fields = [Field(name, of) for name, of in key]
    taken = {name for name, _ in key}
    bounds: dict[int, WindowBound] = {}
    for position, (name, column) in enumerate(named.items()):
        if name in taken:
            raise GraphError(f"agg({name}=...): the key is already called {name!r}; give the aggregate another name")
        if isinstance(column, WindowBound):
            if not windows:
                raise GraphError(f"agg({name}={column!r}): only time windows have a start and an end; leave it out")
            bounds[position] = column
            fields.append(Field(name, Types.LONG()))
        elif isinstance(column, Aggregator):
            column.accumulator_type(elements)
            fields.append(Field(name, column.result_type(elements)))
        else:
            raise GraphError(f"agg({name}={column!r}): give an aggregate, as in agg({name}=fp.Sum('price'))")
    aggregates = Aggregates([a for a in named.values() if isinstance(a, Aggregator)])
    type = classless("namedtuple", "Aggregated", tuple(fields))
    assert isinstance(type, RecordType)
    return aggregates, RowShape(type, tuple(name for name, _ in key), single, bounds)
