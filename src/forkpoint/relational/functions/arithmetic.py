"""Functions of numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_DOWN, ROUND_HALF_UP, Context, Decimal

import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.relational import digits
from forkpoint.relational.functions import decimals
from forkpoint.relational.functions.registry import (
    Datum,
    Function,
    Literals,
    Types,
    any_null,
    common_of,
    is_scalar,
    per_distinct,
    typed,
)
from forkpoint.relational.types import DOUBLE, SqlType, common_type, decimal_type, digits_of

_EXACT = Context(prec=1100)  # every double, and 10 to the power of its exponent


def _same_number(types: Types) -> SqlType | str:
    found = common_type(list(types))
    if found is None or not (found.is_number or found.name == "NULL"):
        return f"takes numbers, not {' and '.join(of.name for of in types)}"
    return found


def _decimal_result(of: Callable[[digits.Digits, digits.Digits], digits.Digits]) -> Callable[[Types], SqlType | str]:
    """The type of an operator's result: the common type, or a DECIMAL with digits by its rule."""

    def result(types: Types) -> SqlType | str:
        found = _same_number(types)
        if isinstance(found, str) or found.name != "DECIMAL":
            return found
        numbers = [digits_of(found if each.name == "NULL" else each) for each in types]
        return decimal_type(digits.adjusted(*of(*numbers)), found.nullable)

    return result


def _operands(types: Types) -> SqlType | None:
    """Operators of decimals convert their operands themselves."""
    found = common_type(list(types))
    return None if found is not None and found.name == "DECIMAL" else found


def _remainder_type(types: Types) -> SqlType | str:
    found = _decimal_result(digits.of_remainder)(types)
    if isinstance(found, str) or not found.is_integer or types[1].name == "NULL":
        return found
    return types[1].with_null(any_null(types))


def _rounded_type(types: Types) -> SqlType | str:
    if len(types) == 2 and not (types[1].is_integer or types[1].name == "NULL"):
        return f"takes a number and an integer, not {types[0].name} and {types[1].name}"
    found = _same_number(types[:1])
    return found if isinstance(found, str) else found.with_null(any_null(types))


def _rounded_digits(found: SqlType, literals: Literals) -> SqlType:
    """The digits of a DECIMAL that is rounded to a literal number of places; with another number, they stay."""
    places = literals[1] if len(literals) > 1 else 0
    if found.name != "DECIMAL" or not isinstance(places, int):
        return found
    return decimal_type(digits.of_rounded(digits_of(found), places), found.nullable)


def _integral_digits(found: SqlType, literals: Literals) -> SqlType:
    return decimal_type((digits_of(found)[0], 0), found.nullable) if found.name == "DECIMAL" else found


def _operator(name: str, of: Callable[[digits.Digits, digits.Digits], digits.Digits], kernel: Callable[..., Datum]) -> Function:
    def computed(left: Datum, right: Datum) -> Datum:
        with_decimals = any(pa.types.is_decimal(each.type) for each in (left, right))
        return (decimals.OPERATORS[name] if with_decimals else kernel)(left, right)

    return Function((2, 2), typed(_remainder_type if name == "%" else _decimal_result(of)), computed, _operands)


def _divide(left: Datum, right: Datum) -> Datum:
    return pc.divide_checked(left, right) if pa.types.is_integer(left.type) else pc.divide(left, right)


def _remainder(left: Datum, right: Datum) -> Datum:
    # As in Java and SQL, the sign is the dividend's.
    if pa.types.is_integer(left.type):
        # The least integer has no quotient by -1, but a remainder.
        safe = pc.if_else(pc.equal(right, pa.scalar(-1, right.type)), pa.scalar(1, right.type), right)
        return pc.subtract(left, pc.multiply(pc.divide_checked(left, safe), safe))
    return per_distinct(_float_remainder, left.type, left, right)


def _float_remainder(left: float, right: float) -> float:
    return math.nan if math.isinf(left) or right == 0 else math.fmod(left, right)


def _rounded(mode: str) -> Callable[..., Datum]:
    """ROUND and TRUNCATE go by a DOUBLE's decimal digits as they print, as Java's BigDecimal does: 1.005 rounds to 1.01."""

    def kernel(number: Datum, count: Datum | None = None) -> Datum:
        places = pa.scalar(0, pa.int32()) if count is None else count
        if pa.types.is_decimal(number.type):
            return decimals.rounded(number, places, half_up=mode == ROUND_HALF_UP)

        def rounded(value: float, count: int) -> float:
            if isinstance(value, int):
                return value if count >= 0 else int(_at(Decimal(value), count))
            if not math.isfinite(value):
                return value
            return float(_at(Decimal(repr(value)), count))

        def _at(value: Decimal, count: int) -> Decimal:
            exponent = value.as_tuple().exponent
            if isinstance(exponent, int) and -exponent <= count:
                return value
            return value.quantize(Decimal(1).scaleb(-max(count, -400)), mode, _EXACT)

        if pa.types.is_integer(number.type) and is_scalar(places) and places.is_valid and places.as_py() >= 0:
            return number
        return per_distinct(rounded, number.type, number, places)

    return kernel


def _log(number: Datum, argument: Datum | None = None) -> Datum:
    return pc.ln(number) if argument is None else pc.divide(pc.ln(argument), pc.ln(number))


def _number(kernel: Callable[..., Datum]) -> Function:
    return Function((1, 1), typed(_same_number), kernel, common_of)


def _integral(kernel: Callable[[Datum], Datum], *, up: bool) -> Function:
    def rounded(number: Datum) -> Datum:
        if pa.types.is_integer(number.type):
            return number
        return decimals.integral(number, up=up) if pa.types.is_decimal(number.type) else kernel(number)

    return Function((1, 1), typed(_same_number), rounded, common_of, refined=_integral_digits)


def _real(kernel: Callable[..., Datum], least: int = 1, most: int | None = None) -> Function:
    def result(types: Types) -> SqlType | str:
        found = _same_number(types)
        return found if isinstance(found, str) else DOUBLE.with_null(any_null(types))

    return Function((least, most or least), result, kernel, lambda types: DOUBLE)


def _constant(value: float) -> Function:
    return Function((0, 0), lambda types: DOUBLE.with_null(False), lambda: pa.scalar(value, pa.float64()))


ARITHMETIC: dict[str, Function] = {
    "+": _operator("+", digits.of_sum, pc.add_checked),
    "-": _operator("-", digits.of_sum, pc.subtract_checked),
    "*": _operator("*", digits.of_product, pc.multiply_checked),
    "/": _operator("/", digits.of_quotient, _divide),
    "%": _operator("%", digits.of_remainder, _remainder),
    "NEGATE": _number(pc.negate_checked),
    "ABS": _number(pc.abs_checked),
    "CEIL": _integral(pc.ceil, up=True),
    "FLOOR": _integral(pc.floor, up=False),
    "SIGN": _number(pc.sign),
    "ROUND": Function((1, 2), _rounded_type, _rounded(ROUND_HALF_UP), refined=_rounded_digits),
    "TRUNCATE": Function((1, 2), _rounded_type, _rounded(ROUND_DOWN), refined=_rounded_digits),
    "SQRT": _real(pc.sqrt),
    "EXP": _real(pc.exp),
    "LN": _real(pc.ln),
    "LOG": _real(_log, 1, 2),
    "LOG10": _real(pc.log10),
    "LOG2": _real(pc.log2),
    "POWER": _real(pc.power, 2),
    "SIN": _real(pc.sin),
    "COS": _real(pc.cos),
    "TAN": _real(pc.tan),
    "COT": _real(lambda x: pc.divide(1.0, pc.tan(x))),
    "ASIN": _real(pc.asin),
    "ACOS": _real(pc.acos),
    "ATAN": _real(pc.atan),
    "ATAN2": _real(pc.atan2, 2),
    "SINH": _real(pc.sinh),
    "COSH": _real(pc.cosh),
    "TANH": _real(pc.tanh),
    "DEGREES": _real(lambda x: pc.multiply(x, 180.0 / math.pi)),
    "RADIANS": _real(lambda x: pc.multiply(x, math.pi / 180.0)),
    "PI": _constant(math.pi),
    "E": _constant(math.e),
}
