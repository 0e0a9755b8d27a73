"""Declarative aggregates such as ``fp.Sum("price")``, with equal results over columns and element by element.

An aggregate is an AggregateFunction that derives the types of its accumulator and result from the element type. It ignores
None, as in SQL; without any value the result is None (0 for counts).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import cached_property
from math import sqrt
from typing import Any, Generic, TypeVar

from forkpoint.errors import GraphError
from forkpoint.functions.base import AggregateFunction
from forkpoint.functions.fields import field_access
from forkpoint.types import TypeInformation, Types
from forkpoint.types.kinds.containers import SequenceType, optional, present

Field = int | str
ACC = TypeVar("ACC")

_WIDER = {
    **dict.fromkeys(("boolean", "byte", "short", "int", "long"), "LONG"),
    **dict.fromkeys(("float", "double"), "DOUBLE"),
    **{kind: kind.upper() for kind in ("big_int", "big_dec", "duration", "any")},
}


class Aggregator(AggregateFunction, Generic[ACC]):
    """An aggregate of a field, given by name or index; index 0 of an element without fields is the element itself."""

    field: Field | None = None

    def __init__(self, field: Field) -> None:
        if field is not None and (not isinstance(field, str | int) or isinstance(field, bool)):
            raise GraphError(f"{type(self).__name__}({field!r}): a field is given by its name or index")
        self.field = field

    def describe(self) -> str:
        """The aggregate as text."""
        return f"{type(self).__name__}({', '.join(map(repr, self.arguments))})"

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The constructor arguments."""
        return () if self.field is None else (self.field,)

    @property
    def state_name(self) -> str:
        """The accumulator's name in saved state. Only equal aggregates resume from it."""
        return "_".join([type(self).__name__.lower(), *(str(a).replace("-", "last") for a in self.arguments)])

    @abstractmethod
    def accumulator_type(self, elements: TypeInformation | None) -> TypeInformation:
        """The accumulator's type for an element type. GraphError for a missing field or unsupported field type."""

    @abstractmethod
    def result_type(self, elements: TypeInformation | None) -> TypeInformation:
        """The result's type for an element type."""

    def create_accumulator(self) -> Any:
        return None

    def add(self, value: Any, accumulator: Any) -> Any:
        found = self._get(value)
        return accumulator if found is None else self.take(found, accumulator)

    @abstractmethod
    def take(self, value: Any, accumulator: Any) -> Any:
        """Return the accumulator with a value of the field, not None, added."""

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        if acc_a is None or acc_b is None:
            return acc_b if acc_a is None else acc_a
        return self.join(acc_a, acc_b)

    @abstractmethod
    def join(self, a: Any, b: Any) -> Any:
        """Return the combination of two non-empty accumulators."""

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    @cached_property
    def _get(self) -> Callable[[Any], Any]:
        return self._getter(self.field)

    def _getter(self, field: Field | None) -> Callable[[Any], Any]:
        if field is None:
            return lambda value: value
        get, _ = field_access(field, ())

        def checked(value: Any) -> Any:
            try:
                return get(value)
            except (AttributeError, LookupError, TypeError):
                raise GraphError(f"{self.describe()}: {value!r} has no such field; name an existing one") from None

        return checked

    def field_type(self, elements: TypeInformation | None) -> TypeInformation:
        """The type of the field's non-null values."""
        return self._type_of(self.field, elements)

    def _type_of(self, field: Field | None, elements: TypeInformation | None) -> TypeInformation:
        if elements is None:
            return Types.ANY()
        if field is None:
            return present(elements)
        if elements.fields is None:
            return present(elements) if field == 0 else Types.ANY()
        names = [f.name for f in elements.fields]
        if isinstance(field, str) and field in names:
            field = names.index(field)
        elif not isinstance(field, int) or not -len(names) <= field < len(names):
            raise GraphError(f"{self.describe()}: the elements have no such field; they have {', '.join(names)}")
        return present(elements.fields[field].type)

    def _wider(self, elements: TypeInformation | None) -> TypeInformation:
        of = self.field_type(elements)
        name = _WIDER.get(of.kind)
        if name is None:
            raise GraphError(f"{self.describe()}: the field has type {of}; expected a number or duration")
        found: TypeInformation = getattr(Types, name)()
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.arguments == other.arguments

    def __hash__(self) -> int:
        return hash((type(self), self.arguments))

    def __repr__(self) -> str:
        return f"fp.{self.describe()}"


class Count(Aggregator[int]):
    """The number of elements or, with a field, of its non-null values. A LONG."""

    def __init__(self, field: Field | None = None) -> None:
        if field is not None:
            super().__init__(field)

    def accumulator_type(self, elements: TypeInformation | None) -> TypeInformation:
        self.field_type(elements)
        return Types.LONG()

    def result_type(self, elements: TypeInformation | None) -> TypeInformation:
        return Types.LONG()

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + 1 if self.field is None or self._get(value) is not None else accumulator

    def take(self, value: Any, accumulator: int) -> int:
        return accumulator + 1

    def join(self, a: int, b: int) -> int:
        return a + b


class _OfField(Aggregator[ACC]):
    """An aggregate whose accumulator and result have the field's type."""

    def accumulator_type(self, elements: TypeInformation | None) -> TypeInformation:
        return optional(self.field_type(elements))

    def result_type(self, elements: TypeInformation | None) -> TypeInformation:
        return self.accumulator_type(elements)

    def join(self, a: Any, b: Any) -> Any:
        return self.take(b, a)


class Sum(_OfField[Any]):
    """The sum of a field: a LONG for ints, a DOUBLE for floats; also for BIG_INT, BIG_DEC and DURATION."""

    def accumulator_type(self, elements: TypeInformation | None) -> TypeInformation:
        return optional(self._wider(elements))

    def take(self, value: Any, accumulator: Any) -> Any:
        # Adding zero first makes a sum 0.0 rather than -0.0.
        return accumulator + value if accumulator is not None else value + type(value)()


class Min(_OfField[Any]):
    """The smallest value of a field; the first among equals."""

    def take(self, value: Any, accumulator: Any) -> Any:
        return value if accumulator is None or value < accumulator else accumulator


class Max(_OfField[Any]):
    """The largest value of a field; the first among equals."""

    def take(self, value: Any, accumulator: Any) -> Any:
        return value if accumulator is None or value > accumulator else accumulator


class First(_OfField[Any]):
    """The first value of a field, in the order of the key's elements."""

    def take(self, value: Any, accumulator: Any) -> Any:
        return value if accumulator is None else accumulator


class Last(_OfField[Any]):
    """The last value of a field, in the order of the key's elements."""

    def take(self, value: Any, accumulator: Any) -> Any:
        return value


class Avg(Aggregator[tuple[Any, int]]):
    """The mean of a field: a DOUBLE for ints and floats, else of the field's type."""

    def accumulator_type(self, elements: TypeInformation | None) -> TypeInformation:
        return optional(Types.TUPLE([self._wider(elements), Types.LONG()]))

    def result_type(self, elements: TypeInformation | None) -> TypeInformation:
        of = self._wider(elements)
        return optional(Types.DOUBLE() if of.kind in ("long", "big_int") else of)

    def take(self, value: Any, accumulator: tuple[Any, int] | None) -> tuple[Any, int]:
        if accumulator is None:
            return value + type(value)(), 1
        return accumulator[0] + value, accumulator[1] + 1

    def join(self, a: tuple[Any, int], b: tuple[Any, int]) -> tuple[Any, int]:
        return a[0] + b[0], a[1] + b[1]

    def get_result(self, accumulator: tuple[Any, int] | None) -> Any:
        return None if accumulator is None else accumulator[0] / accumulator[1]


class StdDev(Aggregator[tuple[int, float, float]]):
    """The population standard deviation of a field, a DOUBLE (SQL's STDDEV_POP, by Welford's algorithm)."""

    def accumulator_type(self, elements: TypeInformation | None) -> TypeInformation:
        self._wider(elements)
        return optional(Types.TUPLE([Types.LONG(), Types.DOUBLE(), Types.DOUBLE()]))

    def result_type(self, elements: TypeInformation | None) -> TypeInformation:
        return optional(Types.DOUBLE())

    def take(self, value: Any, accumulator: tuple[int, float, float] | None) -> tuple[int, float, float]:
        count, mean, squares = accumulator or (0, 0.0, 0.0)
        value = float(value)
        count += 1
        off = value - mean
        mean += off / count
        return count, mean, squares + off * (value - mean)

    def join(self, a: tuple[int, float, float], b: tuple[int, float, float]) -> tuple[int, float, float]:
        count, off = a[0] + b[0], b[1] - a[1]
        return count, a[1] + off * b[0] / count, a[2] + b[2] + off * off * a[0] * b[0] / count

    def get_result(self, accumulator: tuple[int, float, float] | None) -> float | None:
        return None if accumulator is None else sqrt(accumulator[2] / accumulator[0])


class MinBy(Aggregator[tuple[Any, Any]]):
    """The element with the smallest value of a field, the first among equals. ``value``: emit only this field of it."""

    def __init__(self, field: Field, value: Field | None = None) -> None:
        super().__init__(field)
        self.value = value

    @property
    def arguments(self) -> tuple[Any, ...]:
        return (self.field,) if self.value is None else (self.field, self.value)

    def accumulator_type(self, elements: TypeInformation | None) -> TypeInformation:
        value = Types.ANY() if elements is None else self._type_of(self.value, elements)
        return optional(Types.TUPLE([self.field_type(elements), optional(value)]))

    def result_type(self, elements: TypeInformation | None) -> TypeInformation:
        return optional(self._type_of(self.value, elements))

    @cached_property
    def _value(self) -> Callable[[Any], Any]:
        return self._getter(self.value)

    def add(self, value: Any, accumulator: tuple[Any, Any] | None) -> tuple[Any, Any] | None:
        found = self._get(value)
        if found is None or (accumulator is not None and not self.better(found, accumulator[0])):
            return accumulator
        return found, self._value(value)

    def take(self, value: Any, accumulator: Any) -> Any:
        raise AssertionError("add() compares elements, not field values")

    def better(self, value: Any, so_far: Any) -> bool:
        """Whether a value replaces the current one."""
        return bool(value < so_far)

    def join(self, a: tuple[Any, Any], b: tuple[Any, Any]) -> tuple[Any, Any]:
        return b if self.better(b[0], a[0]) else a

    def get_result(self, accumulator: tuple[Any, Any] | None) -> Any:
        return None if accumulator is None else accumulator[1]


class MaxBy(MinBy):
    """The element with the largest value of a field, the first among equals. ``value``: emit only this field of it."""

    def better(self, value: Any, so_far: Any) -> bool:
        return bool(value > so_far)


class _ListOf(Aggregator[list[Any]]):
    def accumulator_type(self, elements: TypeInformation | None) -> TypeInformation:
        return optional(self.result_type(elements))

    def result_type(self, elements: TypeInformation | None) -> TypeInformation:
        return SequenceType("list", self.field_type(elements))

    def get_result(self, accumulator: list[Any] | None) -> list[Any]:
        return list(accumulator or ())


class Collect(_ListOf):
    """The list of a field's values, or of the elements, in order."""

    def __init__(self, field: Field | None = None) -> None:
        if field is not None:
            super().__init__(field)

    def take(self, value: Any, accumulator: list[Any] | None) -> list[Any]:
        if accumulator is None:
            return [value]
        accumulator.append(value)
        return accumulator

    def join(self, a: list[Any], b: list[Any]) -> list[Any]:
        return a + b


class CountDistinct(Aggregator[set[Any]]):
    """The number of distinct values of a field, a LONG. State holds all distinct values."""

    def accumulator_type(self, elements: TypeInformation | None) -> TypeInformation:
        return optional(SequenceType("set", self.field_type(elements)))

    def result_type(self, elements: TypeInformation | None) -> TypeInformation:
        return Types.LONG()

    def take(self, value: Any, accumulator: set[Any] | None) -> set[Any]:
        if accumulator is None:
            return {value}
        accumulator.add(value)
        return accumulator

    def join(self, a: set[Any], b: set[Any]) -> set[Any]:
        return a | b

    def get_result(self, accumulator: set[Any] | None) -> int:
        return len(accumulator or ())


class TopN(_ListOf):
    """A list of the ``n`` largest values of a field, largest first."""

    def __init__(self, field: Field, n: int) -> None:
        super().__init__(field)
        if not isinstance(n, int) or isinstance(n, bool) or n < 1:
            raise GraphError(f"TopN({field!r}, {n!r}): the number of values must be an int of at least 1")
        self.n = n

    @property
    def arguments(self) -> tuple[Any, ...]:
        return (self.field, self.n)

    def take(self, value: Any, accumulator: list[Any] | None) -> list[Any]:
        return self.join(accumulator or [], [value])

    def join(self, a: list[Any], b: list[Any]) -> list[Any]:
        return sorted(a + b, reverse=True)[: self.n]


class WindowBound:
    """A window bound as a column of ``agg``."""

    end = False

    def __repr__(self) -> str:
        return f"fp.{type(self).__name__}()"


class WindowStart(WindowBound):
    """The window's inclusive start in int ms, as a column of ``agg``. Flink SQL's ``window_start``."""


class WindowEnd(WindowBound):
    """The window's exclusive end in int ms, as a column of ``agg``. Flink SQL's ``window_end``."""

    end = True
