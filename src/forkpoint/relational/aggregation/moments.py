"""Variances and standard deviations, from the number, the sum and the sum of the squares of values.

The sums of integers and decimals are exact, and so is what is computed from them; those of FLOAT and DOUBLE lose digits if the
values are much larger than their differences.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa

from forkpoint.relational.digits import adjusted, of_product
from forkpoint.relational.expressions import Call, Expression
from forkpoint.relational.types import DOUBLE, SqlType, decimal_type, digits_of

FUNCTIONS = ("VAR_POP", "VAR_SAMP", "STDDEV_POP", "STDDEV_SAMP")


def square(of: Expression) -> Expression:
    """The square of a number, as exact as its type."""
    exact = of.type.is_integer or of.type.name == "DECIMAL"
    wide = decimal_type(digits_of(of.type), of.type.nullable) if exact else DOUBLE.with_null(of.type.nullable)
    number = of if of.type == wide else Call("CAST", (of,), wide)
    return Call("*", (number, number), _squared(wide))


def _squared(wide: SqlType) -> SqlType:
    if wide.name != "DECIMAL":
        return wide
    return decimal_type(adjusted(*of_product(digits_of(wide), digits_of(wide))), wide.nullable)


def moment(function: str, count: pa.Array, total: pa.Array, squares: pa.Array) -> pa.Array:
    """The result of a function for each group, a DOUBLE: NULL without values, and for a sample of one value."""
    counts = count.to_numpy(zero_copy_only=False)
    free = counts - function.endswith("SAMP")
    valid = free > 0
    if pa.types.is_floating(total.type):
        sums, of_squares = total.to_numpy(zero_copy_only=False), squares.to_numpy(zero_copy_only=False)
        known = np.where(valid, counts, 1)
        spread = of_squares - sums * sums / known
    else:
        spread = np.zeros(len(counts))
        exact = zip(counts.tolist(), total.to_pylist(), squares.to_pylist(), valid.tolist(), strict=True)
        spread[:] = [_spread(n, s, q) if is_valid else 0.0 for n, s, q, is_valid in exact]
    found = np.maximum(spread, 0.0) / np.where(valid, free, 1)
    return pa.array(np.sqrt(found) if function.startswith("STDDEV") else found, mask=~valid)


def _spread(count: int, total: int | Decimal, squares: int | Decimal) -> float:
    """The sum of the squared distances from the mean."""
    return float(Fraction(squares) - Fraction(total) ** 2 / count)
