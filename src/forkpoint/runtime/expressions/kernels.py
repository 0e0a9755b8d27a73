"""Evaluates expressions over columns. Whatever might differ from Python raises `InPython`, and Python computes these elements."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.runtime.expressions.tree import Node

_LOW, _HIGH = -(2**63), 2**63 - 1
_EXACT = 2**53  # up to here, every int is a float
_COMPARISONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "==": (operator.eq, pc.equal),
    "!=": (operator.ne, pc.not_equal),
    "<": (operator.lt, pc.less),
    "<=": (operator.le, pc.less_equal),
    ">": (operator.gt, pc.greater),
    ">=": (operator.ge, pc.greater_equal),
}
_CHECKED = {"+": pc.add_checked, "-": pc.subtract_checked, "*": pc.multiply_checked}
_PLAIN: dict[str, Callable[..., Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
}
_IN_PYTHON: dict[str, Callable[..., Any]] = {
    "+": operator.add,
    "len": len,
    "startswith": str.startswith,
    "endswith": str.endswith,
    "in": lambda part, text: part in text,
}


class InPython(Exception):
    """Columns and Python might differ for some element."""


class Ints:
    """A column of 64-bit integers, or one int for all rows. The bounds of its values are found when they are needed."""

    __slots__ = ("_bounds", "data")

    def __init__(self, data: Any, bounds: tuple[int, int] | None = None) -> None:
        self.data = data
        self._bounds = bounds

    @property
    def bounds(self) -> tuple[int, int]:
        if self._bounds is None:
            data = self.data
            self._bounds = (data, data) if isinstance(data, int) else (int(data.min()), int(data.max())) if len(data) else (0, 0)
        return self._bounds


Column = Any
"""An Arrow array, a value as of `Evaluation.value`, or a function that makes it when an expression reads it."""


def taken(column: Any, rows: npt.NDArray[np.int64]) -> Any:
    """The values of some rows. A value for all rows stays what it is."""
    if isinstance(column, Ints):
        return column if isinstance(column.data, int) else Ints(column.data[rows], column.bounds)
    if isinstance(column, np.ndarray):
        return column[rows]
    return column.take(pa.array(rows)) if isinstance(column, pa.Array) else column


def as_array(value: Any, type: pa.DataType, rows: int) -> pa.Array:
    """A value of `Evaluation.value` as a column. Raises InPython for integers that do not fit into the type."""
    if isinstance(value, Ints):
        low, limit = -1 << (type.bit_width - 1), 1 << (type.bit_width - 1)
        if not (low <= value.bounds[0] and value.bounds[1] < limit):
            least, most = Ints(value.data).bounds  # those of the value may be too wide
            if not low <= least <= most < limit:
                raise InPython
        value = value.data
    if isinstance(value, pa.Array):
        return value
    if not isinstance(value, np.ndarray):
        return pa.repeat(pa.scalar(value, type), rows)
    made = pa.array(value)
    return made if made.type == type else made.cast(type)


class Evaluation:
    """Evaluates expressions over the columns of some elements; common parts once. ``found``: values that are known before."""

    def __init__(self, columns: Sequence[Column], rows: int, found: Mapping[Node, Any] | None = None) -> None:
        self._columns = list(columns)
        self._rows = rows
        self._found: dict[Node, Any] = {}
        self._given: dict[Node, Any] = {}
        for node, value in (found or {}).items():
            self.know(node, value)

    def know(self, node: Node, value: Any) -> None:
        """Take the value of an expression as given. Constants stay what they are, as a text that is looked for must be."""
        if node.operation != "constant":
            self._given[node] = self._found[node] = value

    def have(self, index: int, column: Column) -> None:
        """Add or replace a column."""
        self._columns[index] = column

    def array(self, node: Node, type: pa.DataType) -> pa.Array:
        """The values as a column. Raises InPython, also for integers that do not fit into the type."""
        column = self._column(node.arguments[0]) if node.operation == "field" else None
        if isinstance(column, pa.Array) and column.type == type:
            return column
        return as_array(self.value(node), type, self._rows)

    def field(self, node: Node) -> pa.Array:
        """The column of a field, as it is."""
        return self._column(node.arguments[0])

    def of_rows(self, rows: npt.NDArray[np.int64]) -> Evaluation:
        """The evaluation over some rows."""
        columns = [partial(self._of_rows, index, rows) for index in range(len(self._columns))]
        return Evaluation(columns, len(rows), {node: taken(value, rows) for node, value in self._given.items()})

    def _of_rows(self, index: int, rows: npt.NDArray[np.int64]) -> Any:
        return taken(self._column(index), rows)

    def _column(self, index: int) -> Any:
        if callable(self._columns[index]):
            self._columns[index] = self._columns[index]()
        return self._columns[index]

    def mask(self, node: Node) -> npt.NDArray[np.bool_]:
        """The values of a condition."""
        found = self.value(node)
        return found if isinstance(found, np.ndarray) else np.full(self._rows, found, dtype=bool)

    def value(self, node: Node) -> Any:
        """``Ints``; floats and bools as an array; texts as an Arrow array; constants as they are."""
        if node not in self._found:
            with np.errstate(all="ignore"):
                self._found[node] = self._value(node)
        return self._found[node]

    def _value(self, node: Node) -> Any:
        operation, arguments = node.operation, node.arguments
        if operation == "constant":
            return Ints(arguments[0]) if node.kind == "int" else arguments[0]
        if operation == "field":
            column = self._column(arguments[0])
            return _loaded(column, node) if isinstance(column, pa.Array) else column
        if operation == "if":
            return self._chosen(node)
        values = [self.value(each) for each in arguments]
        kinds = [each.kind for each in arguments]
        try:
            return _computed(operation, node.kind, kinds, values)
        except (pa.ArrowException, OverflowError) as error:
            raise InPython from error

    def _chosen(self, node: Node) -> Any:
        condition, one, other = node.arguments
        where = self.mask(condition)
        if where.all():
            return self.value(one)
        if not where.any():
            return self.value(other)
        try:
            values = self.value(one), self.value(other)
        except InPython:  # rows of the other branch need no value, such as the quotient in a // b if b else 0
            values = self._part(one, where), self._part(other, ~where)
        return _selected(node.kind, where, *values)

    def _part(self, node: Node, where: npt.NDArray[np.bool_]) -> Any:
        """The values where a condition holds; any value elsewhere."""
        rows = np.flatnonzero(where)
        found = self.of_rows(rows).value(node)
        data = found.data if isinstance(found, Ints) else found
        if isinstance(data, pa.Array):
            at = np.zeros(len(where), dtype=np.int64)
            at[rows] = np.arange(len(rows))
            return data.take(pa.array(at))
        if isinstance(data, np.ndarray):
            spread = np.zeros(len(where), dtype=data.dtype)
            spread[rows] = data
            data = spread
        return Ints(data) if isinstance(found, Ints) else data


def _loaded(column: pa.Array, node: Node) -> Any:
    if column.null_count or node.kind == "other":
        raise InPython
    if node.kind == "str":
        return column
    values = column.to_numpy(zero_copy_only=False)
    if node.kind == "int":
        return Ints(values.astype(np.int64, copy=False))
    return values.astype(np.float64, copy=False) if node.kind == "float" else values


def _selected(kind: str, where: npt.NDArray[np.bool_], one: Any, other: Any) -> Any:
    if kind == "str":
        return pc.if_else(pa.array(where), one, other)
    if kind == "int":
        bounds = min(one.bounds[0], other.bounds[0]), max(one.bounds[1], other.bounds[1])
        return Ints(np.where(where, one.data, other.data).astype(np.int64, copy=False), bounds)
    return np.where(where, one, other)


def _computed(operation: str, kind: str, kinds: list[str], values: list[Any]) -> Any:
    if operation in _COMPARISONS:
        return _compared(operation, kinds, *values)
    if kinds[0] == "str":
        return _of_text(operation, values)
    match operation:
        case "not":
            return ~values[0] if isinstance(values[0], np.ndarray) else not values[0]
        case "int":
            return _ints(values[0])
        case "float":
            return _floats(values[0])
        case "str":
            return pa.array(values[0].data).cast(pa.string())
        case "neg" | "abs":
            return _of_one(operation, kind, values[0])
    if kind == "bool":
        return _PLAIN[operation](*values)
    if kind == "int":
        return _of_ints(operation, *map(_ints, values))
    return _of_floats(operation, kinds, *values)


def _ints(value: Any) -> Ints:
    if isinstance(value, Ints):
        return value
    return Ints(value.astype(np.int64), (0, 1)) if isinstance(value, np.ndarray) else Ints(int(value))


def _floats(value: Any) -> Any:
    """As Python converts ints in arithmetic: to the nearest float."""
    data = value.data if isinstance(value, Ints) else value
    return data.astype(np.float64) if isinstance(data, np.ndarray) and data.dtype != np.float64 else _float(data)


def _float(data: Any) -> Any:
    return data if isinstance(data, np.ndarray) else float(data)


def _compared(operation: str, kinds: list[str], left: Any, right: Any) -> Any:
    of_numbers, of_texts = _COMPARISONS[operation]
    if isinstance(left, str) and isinstance(right, str):
        return of_numbers(left, right)
    if kinds[0] == "str":
        return of_texts(left, right).to_numpy(zero_copy_only=False)
    if "float" in kinds:  # Python compares an int with a float exactly
        for each in (left, right):
            if isinstance(each, Ints) and not -_EXACT <= each.bounds[0] <= each.bounds[1] <= _EXACT:
                raise InPython
        return of_numbers(_floats(left), _floats(right))
    if kinds == ["bool", "bool"]:
        return of_numbers(left, right)
    return of_numbers(_ints(left).data, _ints(right).data)


def _of_text(operation: str, values: list[Any]) -> Any:
    if not any(isinstance(value, pa.Array) for value in values):
        found = _IN_PYTHON[operation](*values)
        return Ints(found) if operation == "len" else found
    match operation:
        case "+":
            return pc.binary_join_element_wise(*values, "")
        case "len":
            return Ints(pc.utf8_length(values[0]).to_numpy(zero_copy_only=False).astype(np.int64))
        case "startswith":
            return pc.starts_with(values[0], values[1]).to_numpy(zero_copy_only=False)
        case "endswith":
            return pc.ends_with(values[0], values[1]).to_numpy(zero_copy_only=False)
    return pc.match_substring(values[1], values[0]).to_numpy(zero_copy_only=False)  # in


def _of_one(operation: str, kind: str, value: Any) -> Any:
    if kind == "float":
        return -value if operation == "neg" else abs(value)
    ints = _ints(value)
    low, high = ints.bounds
    if low == _LOW:
        raise InPython
    if operation == "neg":
        return Ints(-ints.data, (-high, -low))
    return Ints(abs(ints.data), (0 if low <= 0 <= high else min(abs(low), abs(high)), max(abs(low), abs(high))))


def _of_ints(operation: str, left: Ints, right: Ints) -> Ints:
    (low, high), (least, most) = left.bounds, right.bounds
    a, b = left.data, right.data
    if operation in ("//", "%"):
        return _divided(operation, left, right)
    if operation in ("&", "|", "^"):
        return Ints(_PLAIN[operation](a, b))
    if operation == ">>":
        if not 0 <= b <= 63:
            raise InPython
        return Ints(a >> b, (low >> b, high >> b))
    if operation == "+":
        bounds = low + least, high + most
    elif operation == "-":
        bounds = low - most, high - least
    else:
        corners = (low * least, low * most, high * least, high * most)
        bounds = min(corners), max(corners)
    if bounds[0] >= _LOW and bounds[1] <= _HIGH:
        return Ints(_PLAIN[operation](a, b), bounds)
    checked = _CHECKED[operation](*(pa.scalar(x) if isinstance(x, int) else pa.array(x) for x in (a, b)))
    return Ints(checked.to_numpy(zero_copy_only=False) if isinstance(checked, pa.Array) else checked.as_py())


def _divided(operation: str, left: Ints, right: Ints) -> Ints:
    (low, high), (least, most) = left.bounds, right.bounds
    a, b = left.data, right.data
    by_zero = b == 0
    if (by_zero if isinstance(b, int) else by_zero.any()) or (low == _LOW and least <= -1 <= most):
        raise InPython
    if not isinstance(b, int) or b < 0 or low + b < _LOW + 1:
        return Ints(a // b if operation == "//" else a % b)
    quotient = a // b
    if operation == "//":
        return Ints(quotient, (low // b, high // b))
    # numpy divides by one number many times faster than it finds the remainder.
    quotient *= -b
    quotient += a
    return Ints(quotient, (0, b - 1))


def _of_floats(operation: str, kinds: list[str], left: Any, right: Any) -> Any:
    if operation == "/" and kinds[0] != "float" and kinds[1] != "float":
        for each in (_ints(left), _ints(right)):
            if not -_EXACT <= each.bounds[0] <= each.bounds[1] <= _EXACT:
                raise InPython  # Python rounds the exact quotient
    a, b = _floats(left), _floats(right)
    if operation in ("/", "//", "%"):
        if np.any(b == 0):
            raise InPython
        if operation != "/":
            if not (np.isfinite(a).all() and np.isfinite(b).all()):
                raise InPython
            return (np.floor_divide if operation == "//" else np.remainder)(a, b)
        return a / b
    return _PLAIN[operation](a, b)
