"""Comparisons, conditions, and functions that choose between values."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.relational.digits import exact_common
from forkpoint.relational.functions.registry import (
    Datum,
    Function,
    Result,
    Types,
    any_null,
    broadcast,
    common_of,
    fixed,
    never_null,
)
from forkpoint.relational.types import BOOLEAN, SqlType, common_type, decimal_type, digits_of
from forkpoint.runtime.columnar.codes import comparable


def _comparison(types: Types) -> SqlType | str:
    if common_type(list(types)) is None:
        return f"cannot compare {' with '.join(of.name for of in types)}; CAST one of them"
    return BOOLEAN.with_null(any_null(types))


def _comparable(types: Types) -> SqlType | None:
    """The type in which values are compared: a DECIMAL with as many digits as are needed."""
    found = common_type(list(types))
    if found is None or found.name != "DECIMAL":
        return found
    return decimal_type(exact_common([digits_of(of) for of in types if of.name != "NULL"]))


def _common(types: Types) -> SqlType | str:
    found = common_type(list(types))
    return f"needs values of one type, not {' and '.join(of.name for of in types)}; CAST them" if found is None else found


def _orderable(types: Types) -> SqlType | str:
    found = _ordered(types)
    return found if isinstance(found, str) else _common(types)


def _coalesced(types: Types) -> SqlType | str:
    found = _common(types)
    return found if isinstance(found, str) else found.with_null(all(of.nullable for of in types))


def _case(types: Types) -> SqlType | str:
    """Conditions at even positions, values at odd positions, and the default last."""
    conditions, values = types[:-1:2], [*types[1::2], types[-1]]
    if any(of.name not in ("BOOLEAN", "NULL") for of in conditions):
        return "takes conditions of type BOOLEAN"
    return _common(values)


def _null_if_result(types: Types) -> SqlType | str:
    found = _comparison(types)
    return found if isinstance(found, str) else types[0].with_null()


def _case_when(*arguments: Datum) -> Datum:
    size = max((len(argument) for argument in arguments if isinstance(argument, pa.Array)), default=1)
    columns = [broadcast(argument, size) for argument in arguments]
    conditions = [column.cast(pa.bool_()).fill_null(False) for column in columns[:-1:2]]
    found = columns[-1]
    for condition, value in zip(reversed(conditions), reversed(columns[1::2]), strict=True):
        found = pc.if_else(condition, value, found)
    if any(isinstance(argument, pa.Array) for argument in arguments):
        return found
    return found[0]


def _equal(left: Datum, right: Datum) -> Datum:
    """Nested values are equal if all parts are, of which NULLs are equal, too."""
    if not pa.types.is_nested(left.type):
        return pc.equal(left, right)
    size = max((len(each) for each in (left, right) if isinstance(each, pa.Array)), default=1)
    pairs = zip(*(map(comparable, broadcast(each, size).to_pylist()) for each in (left, right)), strict=True)
    found = pa.array([None if one is None or other is None else one == other for one, other in pairs], pa.bool_())
    return found if any(isinstance(each, pa.Array) for each in (left, right)) else found[0]


def _not_equal(left: Datum, right: Datum) -> Datum:
    return pc.invert(_equal(left, right))


def _ordered(types: Types) -> SqlType | str:
    nested = [of.name for of in types if of.is_nested]
    return f"cannot order values of {nested[0]}" if nested else _comparison(types)


def _distinct(left: Datum, right: Datum) -> Datum:
    equal = pc.fill_null(_equal(left, right), False)
    return pc.invert(pc.or_(equal, pc.and_(pc.is_null(left), pc.is_null(right))))


def _is(value: bool) -> Callable[[Datum], Datum]:
    return lambda condition: pc.fill_null(condition if value else pc.invert(condition), False)


def _null_if(left: Datum, right: Datum) -> Datum:
    if any(isinstance(value, pa.Scalar) and not value.is_valid for value in (left, right)):
        return left
    equal = pc.fill_null(_equal(left, right), False)
    return pc.if_else(equal, pa.scalar(None, left.type), left)


def _not_null(value: Datum, column: Datum) -> Datum:
    """What a column that is NOT NULL gets."""
    if value.null_count if isinstance(value, pa.Array) else not value.is_valid:
        raise ValueError(
            f"column {column.as_py()} is NOT NULL or in the primary key, and the query has NULL for it; leave such rows out"
        )
    return value


def _single_value(value: Datum, count: Datum) -> Datum:
    """What a subquery that is a value gets. ``count``: of its rows."""
    most = pc.max(count).as_py() if isinstance(count, pa.Array) else count.as_py()
    if most is not None and most > 1:
        raise ValueError(f"a subquery that is a value has several rows: {most}; aggregate them, such as with MAX(…)")
    return value


def _in(value: Datum, *options: Datum) -> Datum:
    found: Datum = pa.scalar(False)
    for option in options:
        found = pc.or_kleene(found, _equal(value, option))
    return found


def _extreme(kernel: Callable[..., Datum], precedes: Callable[..., Datum]) -> Callable[..., Datum]:
    def extreme(*values: Datum) -> Datum:
        if pa.types.is_floating(values[0].type):
            return kernel(*values, skip_nulls=False)
        # Arrow's kernel has no BOOLEAN and no TIMESTAMP_LTZ.
        return reduce(lambda one, other: pc.if_else(precedes(one, other), one, other), values)

    return extreme


def _boolean(types: Types) -> SqlType:
    return BOOLEAN


_LOGIC = fixed(BOOLEAN, "BOOLEAN")
_SURE = never_null(fixed(BOOLEAN))
_SURE_OF_BOOLEAN: Result = never_null(fixed(BOOLEAN, "BOOLEAN"))
_ORDERED = {"<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}

LOGIC: dict[str, Function] = {
    "=": Function((2, 2), _comparison, _equal, _comparable),
    "<>": Function((2, 2), _comparison, _not_equal, _comparable),
    **{name: Function((2, 2), _ordered, kernel, _comparable) for name, kernel in _ORDERED.items()},
    "AND": Function((2, 2), _LOGIC, pc.and_kleene, _boolean),
    "OR": Function((2, 2), _LOGIC, pc.or_kleene, _boolean),
    "NOT": Function((1, 1), _LOGIC, pc.invert, _boolean),
    "IS NULL": Function((1, 1), _SURE, pc.is_null),
    "IS NOT NULL": Function((1, 1), _SURE, pc.is_valid),
    "IS TRUE": Function((1, 1), _SURE_OF_BOOLEAN, _is(True), _boolean),
    "IS FALSE": Function((1, 1), _SURE_OF_BOOLEAN, _is(False), _boolean),
    "IS DISTINCT FROM": Function((2, 2), never_null(_comparison), _distinct, _comparable),
    "IN": Function((2, None), _comparison, _in, _comparable),
    "CASE": Function((3, None), _case, _case_when),
    "IF": Function((3, 3), _case, _case_when),
    "NOT NULL": Function((2, 2), lambda types: types[0].with_null(False), _not_null),
    "SINGLE VALUE": Function((2, 2), lambda types: types[0], _single_value),
    "COALESCE": Function((1, None), _coalesced, pc.coalesce, common_of),
    "IFNULL": Function((2, 2), _coalesced, pc.coalesce, common_of),
    "NULLIF": Function((2, 2), _null_if_result, _null_if),
    "GREATEST": Function((1, None), _orderable, _extreme(pc.max_element_wise, pc.greater), common_of),
    "LEAST": Function((1, None), _orderable, _extreme(pc.min_element_wise, pc.less), common_of),
}
