"""Kernels of DECIMAL: results are exact, then rounded half up to the digits that Flink gives them.

What has no room is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.relational.digits import (
    MOST,
    OF_INTEGERS,
    Digits,
    adjusted,
    of_product,
    of_quotient,
    of_remainder,
    of_sum,
)
from forkpoint.relational.functions.registry import Datum, is_scalar, per_distinct

_WIDE = 76  # digits of Arrow's decimal256
_WORD = 9  # digits that 32 bits hold: by greater divisors, decimal256 has wrong quotients
_BY_BITS = dict(zip((8, 16, 32, 64), OF_INTEGERS.values(), strict=True))
_EXACT = Context(prec=200, rounding=ROUND_DOWN)  # a quotient's first digits are exact, which rounding half up needs
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?", re.ASCII)


def digits_of_column(value: Datum) -> Digits:
    return value.type.precision, value.type.scale


def as_decimal(value: Datum) -> Datum:
    """An integer, BOOLEAN, or NULL of any type, as the DECIMAL that has room for all its values."""
    of = value.type
    if pa.types.is_decimal(of):
        return value
    if pa.types.is_boolean(of):
        return as_decimal(pc.cast(value, pa.int8()))
    return pc.cast(value, pa.decimal128(*(_BY_BITS[of.bit_width] if pa.types.is_integer(of) else (1, 0))))


def decimal_of(precision: int, scale: int) -> pa.DataType:
    """The column type for these digits, which may be more than those of a DECIMAL while something is computed."""
    return pa.decimal128(precision, scale) if precision <= MOST else pa.decimal256(precision, scale)


def rescaled(value: Datum, to: pa.DataType, *, failing_null: bool = False) -> Datum:
    """The value with these digits, rounded half up; if they have no room for it, NULL or an error."""
    value = as_decimal(value)
    if value.type.scale > to.scale:
        value = _shortened(value, to.scale)
    if failing_null:
        value = pc.cast(value, pa.decimal256(_WIDE, to.scale))
        limit = pa.scalar(Decimal(10) ** (to.precision - to.scale), pa.decimal256(MOST + 1, 0))
        value = pc.if_else(pc.less(pc.abs(value), limit), value, pa.scalar(None, value.type))
    return pc.cast(value, to)


def _shortened(value: Datum, scale: int, *, half_up: bool = True) -> Datum:
    """The value with fewer digits after the point, and room for one more before it."""
    precision, given = digits_of_column(value)
    value = pc.cast(value, pa.decimal128(precision, given) if precision < MOST else pa.decimal256(precision, given))
    if half_up:
        half = pa.scalar(Decimal(5).scaleb(-scale - 1), decimal_of(scale + 1, scale + 1))
        negative = pc.less(value, pa.scalar(Decimal(0), value.type))
        value = pc.add(value, pc.if_else(negative, pc.negate(half), half))
    step = given if pa.types.is_decimal128(value.type) else _WORD
    while value.type.scale > scale:
        of = decimal_of(value.type.precision, max(scale, value.type.scale - step))
        value = pc.cast(value, options=pc.CastOptions(of, allow_decimal_truncate=True))
    return value


# -- arithmetic --------------------------------------------------------------------------------------------------------


def _operator(
    kernel: Callable[[Datum, Datum], Datum],
    exact: Callable[[Decimal, Decimal], Decimal],
    digits: Callable[[Digits, Digits], Digits],
    operands: Callable[[Datum, Datum], tuple[Datum, Datum]] = lambda left, right: (left, right),
    arrow_digits: Callable[[Digits, Digits], Digits] | None = None,
    reliable: Callable[[Datum], bool] = lambda right: True,
) -> Callable[[Datum, Datum], Datum]:
    """A kernel of two numbers. ``exact``: the same for Python's numbers, for when Arrow has too few digits, or computes with more
    than 38 and is not ``reliable``. ``operands``: gives them the digits with which the kernel's result has enough.
    ``arrow_digits``: those of the kernel's result, if they are not ``digits``."""

    def computed(left: Datum, right: Datum) -> Datum:
        left, right = as_decimal(left), as_decimal(right)
        to = pa.decimal128(*adjusted(*digits(digits_of_column(left), digits_of_column(right))))
        scaled, divisor = operands(left, right)
        needed = (arrow_digits or digits)(digits_of_column(scaled), digits_of_column(divisor))[0]
        if needed >= _WIDE or (needed > MOST and not reliable(right)):
            return per_distinct(lambda one, other: _rounded_to(exact(one, other), to), to, left, right)
        if needed > MOST:
            scaled, divisor = (pc.cast(each, pa.decimal256(*digits_of_column(each))) for each in (scaled, divisor))
        return rescaled(kernel(scaled, divisor), to)

    return computed


def _rounded_to(value: Decimal, to: pa.DataType) -> Decimal:
    return value.quantize(Decimal(1).scaleb(-to.scale), ROUND_HALF_UP, _EXACT)


def _arrow_quotient(one: Digits, other: Digits) -> Digits:
    (p, s), (q, t) = one, other
    scale = max(4, s + q - t + 1)
    return p - s + t + scale, scale


def _dividend(left: Datum, right: Datum) -> tuple[Datum, Datum]:
    """Arrow's quotient, which it truncates, gets a digit more than the result."""
    (precision, scale), (q, t) = digits = digits_of_column(left), digits_of_column(right)
    more = max(scale, adjusted(*of_quotient(*digits))[1] + t - q)
    grown = precision + more - scale
    return (pc.cast(left, decimal_of(grown, more)) if grown <= _WIDE else left), right


def _is_word(divisor: Datum) -> bool:
    """Whether all divisors have 32 bits. With larger ones, decimal256 has wrong quotients."""
    greatest = pc.max(pc.abs(divisor)) if isinstance(divisor, pa.Array) else pc.abs(divisor)
    return greatest.as_py() is None or greatest.as_py().scaleb(divisor.type.scale) < 2**32


def _divided(one: Decimal, other: Decimal) -> Decimal:
    if not other:
        raise ValueError("Divide by zero")
    return _EXACT.divide(one, other)


def _remainder(left: Datum, right: Datum) -> Datum:
    left, right = as_decimal(left), as_decimal(right)
    to = pa.decimal128(*adjusted(*of_remainder(digits_of_column(left), digits_of_column(right))))

    def remainder(one: Decimal, other: Decimal) -> Decimal:
        if not other:
            raise ValueError("Divide by zero")
        return _rounded_to(_EXACT.remainder(one, other), to)

    return per_distinct(remainder, to, left, right)


OPERATORS: dict[str, Callable[[Datum, Datum], Datum]] = {
    "+": _operator(pc.add, _EXACT.add, of_sum),
    "-": _operator(pc.subtract, _EXACT.subtract, of_sum),
    "*": _operator(pc.multiply, _EXACT.multiply, of_product),
    "/": _operator(pc.divide, _divided, of_quotient, _dividend, _arrow_quotient, _is_word),
    "%": _remainder,
}
"""Of two numbers, at least one of them a DECIMAL and none a FLOAT or DOUBLE."""


def integral(number: Datum, *, up: bool) -> Datum:
    """CEIL and FLOOR."""
    precision, scale = digits_of_column(number)
    if precision == MOST:
        mode = ROUND_CEILING if up else ROUND_FLOOR
        return per_distinct(lambda value: value.to_integral_value(mode), pa.decimal128(MOST, 0), number)
    return (pc.ceil if up else pc.floor)(pc.cast(number, pa.decimal128(precision + 1, scale)))


def rounded(number: Datum, places: Datum, *, half_up: bool) -> Datum:
    """ROUND and TRUNCATE."""
    precision, scale = digits_of_column(number)
    if is_scalar(places) and places.is_valid and places.as_py() >= 0:
        return number if places.as_py() >= scale else _shortened(number, places.as_py(), half_up=half_up)
    mode = ROUND_HALF_UP if half_up else ROUND_DOWN

    def at(value: Decimal, count: int) -> Decimal:
        if count < -precision:
            return Decimal(0)
        return value if count >= scale else value.quantize(Decimal(1).scaleb(-count), mode, _EXACT)

    return per_distinct(at, decimal_of(precision + 1, scale), number, places)


# -- casts -------------------------------------------------------------------------------------------------------------


def decimal_from(value: Datum, to: pa.DataType, *, failing_null: bool) -> Datum:
    """CAST of a number, a BOOLEAN or a text to a DECIMAL."""
    of = value.type
    if pa.types.is_floating(of):  # by the digits with which it prints, as in Java
        return per_distinct(lambda number: _parsed(repr(number), to, failing_null), to, value)
    if not pa.types.is_string(of):
        return rescaled(value, to, failing_null=failing_null)
    text = pc.utf8_trim_whitespace(value)
    longest = pc.utf8_length(text) if is_scalar(text) else pc.max(pc.utf8_length(text))
    try:
        if (longest.as_py() or 0) <= MOST:  # Arrow has wrong numbers for more digits, without an error
            return pc.cast(text, to)
    except pa.ArrowInvalid:  # no number, or too many digits
        pass
    return per_distinct(lambda each: _parsed(each, to, failing_null), to, text)


def _parsed(text: str, to: pa.DataType, failing_null: bool) -> Decimal | None:
    found = None
    if _NUMBER.fullmatch(text):
        try:
            found = Decimal(text).quantize(Decimal(1).scaleb(-to.scale), ROUND_HALF_UP, Context(prec=to.precision))
        except InvalidOperation:
            found = None
    if found is None and not failing_null:
        raise ValueError(f"{text!r} is no DECIMAL({to.precision}, {to.scale})")
    return found


def decimal_to(value: Datum, to: pa.DataType) -> Datum:
    """CAST of a DECIMAL to a text, a BOOLEAN, a FLOAT or a DOUBLE."""
    if pa.types.is_boolean(to):
        return pc.not_equal(value, 0)
    if pa.types.is_floating(to):  # from digits, Arrow does not always find the nearest number
        return pc.cast(pc.cast(value, pa.string()), to)
    # Arrow writes an exponent if there are 6 zeros after the point; Flink does not.
    return pc.cast(value, to) if value.type.scale <= 6 else per_distinct(lambda number: f"{number:f}", to, value)


def whole_of(value: Datum) -> Any:
    """A DECIMAL without its fraction."""
    precision, scale = digits_of_column(value)
    return pc.cast(pc.trunc(value), pa.decimal128(max(precision - scale, 1), 0))
