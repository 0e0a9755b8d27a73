"""Functions that make arrays and maps of other ones. NULL in, NULL out; elements may be NULL, and are equal to NULL then."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from forkpoint.relational.functions.nested import by_columns
from forkpoint.relational.functions.registry import Datum, Function, Result, Types, any_null, common_of
from forkpoint.relational.types import INTEGERS, STRING, SqlType, array_type, common_type, map_type, row_of
from forkpoint.runtime.columnar.codes import comparable

_ORDERED = "takes an ARRAY of values with an order"


def _per_row(
    function: Callable[..., Any], of: Callable[[pa.DataType], pa.DataType] = lambda first: first, *, strict: int | None = None
) -> Callable[..., Datum]:
    """A kernel that calls a function of Python's values for each row. ``of``: the type of the result for that of the first
    argument. ``strict``: how many arguments, of the first, must not be NULL (None: all)."""

    @by_columns
    def kernel(*columns: pa.Array) -> pa.Array:
        rows = zip(*(column.to_pylist() for column in columns), strict=True)
        return pa.array([None if None in row[:strict] else function(*row) for row in rows], of(columns[0].type))

    return kernel


def _with_element(types: Types) -> SqlType | str:
    """An array and a value that its elements may have."""
    if types[0].name != "ARRAY":
        return f"takes an ARRAY, not {types[0].label}"
    found = common_type([types[0].element, types[1]])
    if found is None or not found.same_values(types[0].element):
        return f"takes an ARRAY and a value of its elements' type, not {types[0].label} and {types[1].label}; CAST it"
    return types[0]


def _position_type(types: Types) -> SqlType | str:
    found = _with_element(types)
    return found if isinstance(found, str) else SqlType("INT", any_null(types))


def _arrays(types: Types) -> SqlType | str:
    found = common_type(list(types))
    return found if found is not None and found.name == "ARRAY" else "takes ARRAYs of one type; CAST them"


def _maps(types: Types) -> SqlType | str:
    found = common_type(list(types))
    return found if found is not None and found.name == "MAP" else "takes MAPs of one type; CAST them"


def _array_and(*accepted: tuple[str, ...]) -> Result:
    """An array, which is the result's type, and values of these types."""

    def result(types: Types) -> SqlType | str:
        if types[0].name != "ARRAY":
            return f"takes an ARRAY, not {types[0].label}"
        for given, names in zip(types[1:], accepted, strict=False):
            if given.name not in (*names, "NULL"):
                return f"takes an ARRAY and {' or '.join(names[:1])}, not {given.label}"
        return types[0].with_null(any_null(types))

    return result


def _sorted_type(types: Types) -> SqlType | str:
    found = _array_and(("BOOLEAN",), ("BOOLEAN",))(types)
    return _ORDERED if not isinstance(found, str) and found.element.is_nested else found


def _extreme_type(types: Types) -> SqlType | str:
    if types[0].name != "ARRAY" or types[0].element.is_nested:
        return _ORDERED
    return types[0].element.with_null()


def _joined_type(types: Types) -> SqlType | str:
    if types[0].name != "ARRAY" or any(of.name not in ("STRING", "NULL") for of in (types[0].element, *types[1:])):
        return "takes an ARRAY<STRING>, a separator and a text"
    return STRING.with_null(any_null(types))


def _of_map(make: Callable[[SqlType, SqlType], SqlType]) -> Result:
    def result(types: Types) -> SqlType | str:
        if types[0].name != "MAP":
            return f"takes a MAP, not {types[0].label}"
        key, value = types[0].fields
        return make(key.type, value.type).with_null(types[0].nullable)

    return result


def _from_arrays_type(types: Types) -> SqlType | str:
    if any(of.name != "ARRAY" for of in types) or types[0].element.is_nested:
        return "takes an ARRAY of keys and an ARRAY of values"
    return map_type(types[0].element, types[1].element).with_null(any_null(types))


def _distinct(elements: Iterable[Any]) -> list[Any]:
    found: dict[str, Any] = {}
    for each in elements:
        found.setdefault(repr(comparable(each)), each)
    return list(found.values())


def _among(elements: Iterable[Any], others: list[Any], wanted: bool) -> list[Any]:
    known = {repr(comparable(each)) for each in others}
    return _distinct(each for each in elements if (repr(comparable(each)) in known) == wanted)


def _position(elements: list[Any], wanted: Any) -> int:
    of = comparable(wanted)
    return next((at for at, each in enumerate(elements, 1) if comparable(each) == of), 0)


def _removed(elements: list[Any], unwanted: Any) -> list[Any]:
    of = comparable(unwanted)
    return [each for each in elements if comparable(each) != of]


def _slice(elements: list[Any], first: int, last: int | None = None) -> list[Any]:
    count = len(elements)
    start = first - 1 if first > 0 else count + first if first < 0 else 0
    end = count if last is None else last if last > 0 else count + last + 1 if last < 0 else 1
    return elements[max(start, 0) : max(end, 0)]


def _sorted(elements: list[Any], ascending: bool = True, null_first: bool | None = None) -> list[Any]:
    present = sorted((each for each in elements if each is not None), reverse=not ascending)
    missing = [None] * (len(elements) - len(present))
    return missing + present if (ascending if null_first is None else null_first) else present + missing


def _extreme(choose: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    return lambda elements: choose([each for each in elements if each is not None] or [None])


def _joined(elements: list[str | None], separator: str, for_null: str | None = None) -> str:
    return separator.join(text for each in elements if (text := for_null if each is None else each) is not None)


def _from_arrays(keys: list[Any], values: list[Any]) -> list[tuple[Any, Any]]:
    if len(keys) != len(values):
        raise ValueError(f"MAP_FROM_ARRAYS has {len(keys)} keys and {len(values)} values")
    return list(dict(zip(keys, values, strict=True)).items())


def _united(*maps: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    return list({key: value for each in maps for key, value in each}.items())


def _element(of: pa.DataType) -> pa.DataType:
    return of.value_type


@by_columns
def _mapped(keys: pa.Array, values: pa.Array) -> pa.Array:
    pairs = zip(keys.to_pylist(), values.to_pylist(), strict=True)
    found = [None if None in pair else _from_arrays(*pair) for pair in pairs]
    return pa.array(found, map_type_of(keys.type.value_type, values.type.value_type))


def map_type_of(key: pa.DataType, value: pa.DataType) -> pa.DataType:
    return pa.map_(pa.field("key", key, nullable=False), pa.field("value", value))


def _entries_of(of: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", pa.struct([pa.field("key", of.key_type), pa.field("value", of.item_type)])))


def _list_of(of: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", of))


_SLICE = _array_and(INTEGERS[::-1], INTEGERS[::-1])

COLLECTIONS: dict[str, Function] = {
    "ARRAY_APPEND": Function((2, 2), _with_element, _per_row(lambda elements, each: [*elements, each], strict=1)),
    "ARRAY_PREPEND": Function((2, 2), _with_element, _per_row(lambda elements, each: [each, *elements], strict=1)),
    "ARRAY_REMOVE": Function((2, 2), _with_element, _per_row(_removed, strict=1)),
    "ARRAY_POSITION": Function((2, 2), _position_type, _per_row(_position, lambda first: pa.int32())),
    "ARRAY_CONCAT": Function((1, None), _arrays, _per_row(lambda *all: [each for of in all for each in of]), common_of),
    "ARRAY_DISTINCT": Function((1, 1), _arrays, _per_row(_distinct)),
    "ARRAY_REVERSE": Function((1, 1), _arrays, _per_row(lambda elements: elements[::-1])),
    "ARRAY_UNION": Function((2, 2), _arrays, _per_row(lambda one, other: _distinct([*one, *other])), common_of),
    "ARRAY_EXCEPT": Function((2, 2), _arrays, _per_row(lambda one, other: _among(one, other, False)), common_of),
    "ARRAY_INTERSECT": Function((2, 2), _arrays, _per_row(lambda one, other: _among(one, other, True)), common_of),
    "ARRAY_SLICE": Function((2, 3), _SLICE, _per_row(_slice)),
    "ARRAY_SORT": Function((1, 3), _sorted_type, _per_row(_sorted)),
    "ARRAY_MAX": Function((1, 1), _extreme_type, _per_row(_extreme(max), _element)),
    "ARRAY_MIN": Function((1, 1), _extreme_type, _per_row(_extreme(min), _element)),
    "ARRAY_JOIN": Function((2, 3), _joined_type, _per_row(_joined, lambda first: pa.string())),
    "MAP_KEYS": Function(
        (1, 1),
        _of_map(lambda key, value: array_type(key)),
        _per_row(lambda m: [k for k, _ in m], lambda of: _list_of(of.key_type)),
    ),
    "MAP_VALUES": Function(
        (1, 1),
        _of_map(lambda key, value: array_type(value)),
        _per_row(lambda m: [v for _, v in m], lambda of: _list_of(of.item_type)),
    ),
    "MAP_ENTRIES": Function(
        (1, 1),
        _of_map(lambda key, value: array_type(row_of(["key", "value"], [key, value]))),
        _per_row(lambda entries: [{"key": key, "value": value} for key, value in entries], _entries_of),
    ),
    "MAP_FROM_ARRAYS": Function((2, 2), _from_arrays_type, _mapped),
    "MAP_UNION": Function((1, None), _maps, _per_row(_united), common_of),
}
