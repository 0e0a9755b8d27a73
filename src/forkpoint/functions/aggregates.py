"""Several aggregators at once, and the row that becomes of their results: what ``agg`` stands on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from forkpoint.errors import GraphError
from forkpoint.functions.aggregators import Aggregator, WindowBound
from forkpoint.functions.base import AggregateFunction
from forkpoint.functions.window_functions import WindowFunction
from forkpoint.types import Field, TypeInformation, Types
from forkpoint.types.containers import OptionalType
from forkpoint.types.records import RecordType, classless


class Aggregates(AggregateFunction):
    """Aggregators side by side: the accumulator is a record of theirs, and the result the tuple of their results.

    An aggregate that occurs twice has one accumulator. ``outputs[i]``: which part the i-th result is of.
    """

    def __init__(self, aggregators: Iterable[Aggregator[Any]]) -> None:
        given = list(aggregators)
        self.parts = tuple(dict.fromkeys(given))
        self.outputs = tuple(self.parts.index(a) for a in given)

    def accumulator_type(self, elements: TypeInformation | None) -> TypeInformation:
        """A record with a field for each part. Its names and defaults let parts come and go between versions."""
        members: list[Field] = []
        for part in self.parts:
            of = part.accumulator_type(elements)
            empty = None if isinstance(of, OptionalType) else part.create_accumulator()
            name, alike = (
                part.state_name,
                sum(other.state_name == part.state_name for other in self.parts[: len(members)]),
            )
            members.append(Field(f"{name}_{alike + 1}" if alike else name, of, empty))
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
    """The columns of a row: the key's, then for each given name a window's bound or the next result.

    ``key_names``: empty where there is no key to show; ``single``: whether the key is the one column itself.
    ``bounds``: by place among the columns behind the key's.
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
        for place, bound in sorted(self.bounds.items()):
            rest.insert(place, window.end if bound.end else window.start)
        return self._make((*head, *rest))


class WindowRows(WindowFunction):
    """A window's results as a row, with key and bounds."""

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
    """The aggregates and the row's shape for what ``agg`` was given; GraphError where that makes no row."""
    if not named:
        raise GraphError("agg() without aggregates; give at least one, as in agg(n=fp.Count())")
    fields = [Field(name, of) for name, of in key]
    taken = {name for name, _ in key}
    bounds: dict[int, WindowBound] = {}
    for place, (name, what) in enumerate(named.items()):
        if name in taken:
            raise GraphError(f"agg({name}=...): the key is already called {name!r}; give the aggregate another name")
        if isinstance(what, WindowBound):
            if not windows:
                raise GraphError(f"agg({name}={what!r}): only time windows have a start and an end; leave it out")
            bounds[place] = what
            fields.append(Field(name, Types.LONG()))
        elif isinstance(what, Aggregator):
            what.accumulator_type(elements)
            fields.append(Field(name, what.result_type(elements)))
        else:
            raise GraphError(f"agg({name}={what!r}): give an aggregate, as in agg({name}=fp.Sum('price'))")
    aggregates = Aggregates([a for a in named.values() if isinstance(a, Aggregator)])
    type = classless("namedtuple", "Aggregated", tuple(fields))
    assert isinstance(type, RecordType)
    return aggregates, RowShape(type, tuple(name for name, _ in key), single, bounds)
