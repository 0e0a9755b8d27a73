"""SQL's scalar functions: the type of each result, and the kernel that computes a column of results.

Kernels follow SQL: NULL in, NULL out, unless a function says otherwise; AND and OR have three values. Integer division truncates;
integers that overflow, or are divided by zero, are errors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.relational.types import BIGINT, BOOLEAN, DOUBLE, STRING, TIMES, SqlType, common_type

Datum: TypeAlias = Any
"""A column (pa.Array), or one value for all rows (pa.Scalar)."""
Types = Sequence[SqlType]


@dataclass(frozen=True)
class Function:
    """``accepts``: the numbers of arguments, from and to (None: any). ``result``: the type for these arguments; a text says why
    there is none. ``kernel``: receives arguments of the type that ``operands`` chose for all of them (None: as they are)."""

    accepts: tuple[int, int | None]
    result: Callable[[Types], SqlType | str]
    kernel: Callable[..., Datum]
    operands: Callable[[Types], SqlType | None] = lambda types: None


def _any_null(types: Types) -> bool:
    return any(of.nullable for of in types)


def _fixed(of: SqlType, *accepted: str) -> Callable[[Types], SqlType | str]:
    """A result of this type, null if an argument is, for arguments of the accepted types (none: any)."""

    def result(types: Types) -> SqlType | str:
        for given in types:
            if accepted and given.name not in (*accepted, "NULL"):
                return f"takes {' or '.join(accepted)}, not {given.name}"
        return of.with_null(_any_null(types))

    return result


def _same_number(types: Types) -> SqlType | str:
    found = common_type(list(types))
    if found is None or not (found.is_number or found.name == "NULL"):
        return f"takes numbers, not {' and '.join(of.name for of in types)}"
    return found


def _comparison(types: Types) -> SqlType | str:
    if common_type(list(types)) is None:
        return f"cannot compare {' with '.join(of.name for of in types)}; CAST one of them"
    return BOOLEAN.with_null(_any_null(types))


def _common(types: Types) -> SqlType | str:
    found = common_type(list(types))
    return f"needs values of one type, not {' and '.join(of.name for of in types)}; CAST them" if found is None else found


def _common_of(types: Types) -> SqlType | None:
    return common_type(list(types))


def _coalesced(types: Types) -> SqlType | str:
    found = _common(types)
    return found if isinstance(found, str) else found.with_null(all(of.nullable for of in types))


def _case(types: Types) -> SqlType | str:
    """Conditions at even positions, values at odd positions, and the default last."""
    conditions, values = types[:-1:2], [*types[1::2], types[-1]]
    if any(of.name not in ("BOOLEAN", "NULL") for of in conditions):
        return "takes conditions of type BOOLEAN"
    return _common(values)


def _divide(left: Datum, right: Datum) -> Datum:
    return pc.divide_checked(left, right) if pa.types.is_integer(left.type) else pc.divide(left, right)


def _remainder(left: Datum, right: Datum) -> Datum:
    # As in Java and SQL, the sign is the dividend's.
    if pa.types.is_integer(left.type):
        return pc.subtract(left, pc.multiply(pc.divide_checked(left, right), right))
    return pc.subtract(left, pc.multiply(pc.trunc(pc.divide(left, right)), right))


def _case_when(*arguments: Datum) -> Datum:
    size = max((len(argument) for argument in arguments if isinstance(argument, pa.Array)), default=1)
    columns = [broadcast(argument, size) for argument in arguments]
    conditions = [column.cast(pa.bool_()).fill_null(False) for column in columns[:-1:2]]
    found = columns[-1]
    for condition, value in zip(reversed(conditions), reversed(columns[1::2]), strict=True):
        found = pc.if_else(condition, value, found)
    return found


def _like(text: Datum, pattern: Datum, escape: Datum | None = None) -> Datum:
    if not isinstance(pattern, pa.Scalar):
        raise ValueError("the pattern of LIKE must be a literal")
    if not pattern.is_valid:
        return pa.scalar(None, pa.bool_())
    mark = None if escape is None else escape.as_py()
    return pc.match_substring_regex(text, _like_regex(pattern.as_py(), mark))


def _like_regex(pattern: str, escape: str | None) -> str:
    parts, at = [], 0
    while at < len(pattern):
        sign = pattern[at]
        if escape is not None and sign == escape:
            at += 1
            if at == len(pattern) or pattern[at] not in ("%", "_", escape):
                raise ValueError(f"LIKE {pattern!r}: {escape!r} must precede %, _ or itself")
            parts.append(re.escape(pattern[at]))
        else:
            parts.append({"%": ".*", "_": "."}.get(sign) or re.escape(sign))
        at += 1
    return f"(?s)^{''.join(parts)}$"


def _distinct(left: Datum, right: Datum) -> Datum:
    equal = pc.fill_null(pc.equal(left, right), False)
    return pc.invert(pc.or_(equal, pc.and_(pc.is_null(left), pc.is_null(right))))


def _is(value: bool) -> Callable[[Datum], Datum]:
    return lambda condition: pc.fill_null(condition if value else pc.invert(condition), False)


def _substring(text: Datum, start: Datum, length: Datum | None = None) -> Datum:
    if not isinstance(start, pa.Scalar) or not (length is None or isinstance(length, pa.Scalar)):
        raise ValueError("the start and length of SUBSTRING must be literals")
    first, count = start.as_py(), None if length is None else length.as_py()
    if first is None or (length is not None and count is None):
        return pa.scalar(None, pa.string())
    if count is not None and count < 0:
        raise ValueError("the length of SUBSTRING is negative")
    begin = first - 1 if first > 0 else first
    if begin < 0 and count is not None and begin + count >= 0:
        return pc.utf8_slice_codeunits(text, begin)
    return pc.utf8_slice_codeunits(text, begin, None if count is None else begin + count)


def _concat(*texts: Datum) -> Datum:
    return pc.binary_join_element_wise(*texts, "")


def _if(condition: Datum, yes: Datum, no: Datum) -> Datum:
    return _case_when(condition, yes, no)


def _null_if(left: Datum, right: Datum) -> Datum:
    equal = pc.fill_null(pc.equal(left, right), False)
    return pc.if_else(equal, pa.scalar(None, left.type), left)


def _not_null(value: Datum, column: Datum) -> Datum:
    """What a column that is NOT NULL gets."""
    if value.null_count if isinstance(value, pa.Array) else not value.is_valid:
        raise ValueError(f"column {column.as_py()} is NOT NULL; filter such rows out, or declare the column without NOT NULL")
    return value


def _in(value: Datum, *options: Datum) -> Datum:
    found: Datum = pa.scalar(False)
    for option in options:
        found = pc.or_kleene(found, pc.equal(value, option))
    return found


def _never_null(*accepted: str) -> Callable[[Types], SqlType | str]:
    checked = _fixed(BOOLEAN, *accepted)

    def result(types: Types) -> SqlType | str:
        found = checked(types)
        return found if isinstance(found, str) else BOOLEAN.with_null(False)

    return result


_TEXTS = _fixed(STRING, "STRING")
_LOGIC = _fixed(BOOLEAN, "BOOLEAN")
_COMPARED = {"=": pc.equal, "<>": pc.not_equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}


def _number(kernel: Callable[..., Datum], least: int = 1, most: int = 1) -> Function:
    return Function((least, most), _same_number, kernel, _common_of)


def _real(kernel: Callable[..., Datum], arguments: int = 1) -> Function:
    def result(types: Types) -> SqlType | str:
        found = _same_number(types)
        return found if isinstance(found, str) else DOUBLE.with_null(_any_null(types))

    return Function((arguments, arguments), result, kernel, lambda types: DOUBLE)


FUNCTIONS: dict[str, Function] = {
    **{name: Function((2, 2), _comparison, kernel, _common_of) for name, kernel in _COMPARED.items()},
    "+": _number(pc.add_checked, 2, 2),
    "-": _number(pc.subtract_checked, 2, 2),
    "*": _number(pc.multiply_checked, 2, 2),
    "/": _number(_divide, 2, 2),
    "%": _number(_remainder, 2, 2),
    "NEGATE": _number(pc.negate_checked),
    "ABS": _number(pc.abs_checked),
    "CEIL": _number(lambda x: x if pa.types.is_integer(x.type) else pc.ceil(x)),
    "FLOOR": _number(lambda x: x if pa.types.is_integer(x.type) else pc.floor(x)),
    "SIGN": _number(lambda x: pc.sign(x).cast(x.type)),
    "GREATEST": _number(lambda *xs: pc.max_element_wise(*xs, skip_nulls=False), 1, 99),
    "LEAST": _number(lambda *xs: pc.min_element_wise(*xs, skip_nulls=False), 1, 99),
    "SQRT": _real(pc.sqrt),
    "EXP": _real(pc.exp),
    "LN": _real(pc.ln),
    "LOG10": _real(pc.log10),
    "LOG2": _real(pc.log2),
    "POWER": _real(pc.power, 2),
    "AND": Function((2, 2), _LOGIC, pc.and_kleene, lambda types: BOOLEAN),
    "OR": Function((2, 2), _LOGIC, pc.or_kleene, lambda types: BOOLEAN),
    "NOT": Function((1, 1), _LOGIC, pc.invert, lambda types: BOOLEAN),
    "IS NULL": Function((1, 1), _never_null(), pc.is_null),
    "IS NOT NULL": Function((1, 1), _never_null(), pc.is_valid),
    "IS TRUE": Function((1, 1), _never_null("BOOLEAN"), _is(True), lambda types: BOOLEAN),
    "IS FALSE": Function((1, 1), _never_null("BOOLEAN"), _is(False), lambda types: BOOLEAN),
    "IS DISTINCT FROM": Function(
        (2, 2),
        lambda types: found if isinstance(found := _comparison(types), str) else BOOLEAN.with_null(False),
        _distinct,
        _common_of,
    ),
    "IN": Function((2, None), _comparison, _in, _common_of),
    "CASE": Function((3, None), _case, _case_when),
    "IF": Function((3, 3), _case, _if),
    "NOT NULL": Function((2, 2), lambda types: types[0].with_null(False), _not_null),
    "COALESCE": Function((1, None), _coalesced, pc.coalesce, _common_of),
    "NULLIF": Function(
        (2, 2), lambda types: found if isinstance(found := _comparison(types), str) else types[0].with_null(), _null_if
    ),
    "||": Function((2, None), _TEXTS, _concat),
    "CONCAT": Function((1, None), _TEXTS, _concat),
    "UPPER": Function((1, 1), _TEXTS, pc.utf8_upper),
    "LOWER": Function((1, 1), _TEXTS, pc.utf8_lower),
    "REVERSE": Function((1, 1), _TEXTS, pc.utf8_reverse),
    "TRIM": Function((1, 1), _TEXTS, lambda text: pc.utf8_trim(text, " ")),
    "LTRIM": Function((1, 1), _TEXTS, lambda text: pc.utf8_ltrim(text, " ")),
    "RTRIM": Function((1, 1), _TEXTS, lambda text: pc.utf8_rtrim(text, " ")),
    "SUBSTRING": Function(
        (2, 3),
        lambda types: _TEXTS(types[:1]) if all(t.is_integer for t in types[1:]) else "takes a text, an integer and an integer",
        _substring,
    ),
    "CHAR_LENGTH": Function((1, 1), _fixed(SqlType("INT"), "STRING"), pc.utf8_length),
    "LIKE": Function((2, 3), _fixed(BOOLEAN, "STRING"), _like),
    "UNIX_MILLIS": Function(
        (1, 1), _fixed(BIGINT, "TIMESTAMP_LTZ"), lambda time: time.cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
    ),
}


def broadcast(value: Datum, size: int) -> pa.Array:
    """A column of ``size`` rows."""
    return pa.repeat(value, size) if isinstance(value, pa.Scalar) else value


# -- CAST --------------------------------------------------------------------------------------------------------------


def castable(source: SqlType, target: SqlType) -> bool:
    """Whether CAST converts between two types."""
    if source.name in ("NULL", target.name) or "STRING" in (source.name, target.name):
        return True
    numeric = (source.is_number or source.name == "BOOLEAN") and (target.is_number or target.name == "BOOLEAN")
    return numeric or (source.name in TIMES and target.name in TIMES and "TIME" not in (source.name, target.name))


def cast(value: Datum, target: SqlType, *, failing_null: bool) -> Datum:
    """CAST; with ``failing_null``, TRY_CAST, which makes NULL of what cannot be converted."""
    arrow = target.arrow_type
    if value.type == arrow:
        return value
    try:
        return _cast(value, arrow)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        if not failing_null:
            raise
    one_by_one = [_try_cast(each, arrow) for each in ([value] if isinstance(value, pa.Scalar) else value)]
    return one_by_one[0] if isinstance(value, pa.Scalar) else pa.array([each.as_py() for each in one_by_one], arrow)


def _try_cast(value: pa.Scalar, arrow: pa.DataType) -> pa.Scalar:
    try:
        return _cast(value, arrow)
    except pa.ArrowInvalid:
        return pa.scalar(None, arrow)


def _cast(value: Datum, arrow: pa.DataType) -> Datum:
    if pa.types.is_string(arrow):
        if pa.types.is_boolean(value.type):
            return pc.if_else(value, "TRUE", "FALSE")
        return pc.cast(value, arrow)
    if pa.types.is_string(value.type):
        value = pc.utf8_trim(value, " ")
        if pa.types.is_boolean(arrow):
            value = pc.utf8_lower(value)
    options = pc.CastOptions(arrow, allow_float_truncate=True, allow_time_truncate=True)
    return pc.cast(value, options=options)
