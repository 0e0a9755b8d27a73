"""Variances and standard deviations, from the number, the sum and the sum of the squares of values.

The sums of integers and decimals are exact; those of FLOAT and DOUBLE lose digits if the values are much larger than their
differences. Of integers, Flink divides integers: the square of the sum by the number, and the spread by the number.
"""

from __future__ import annotations

from fractions import Fraction
from math import isqrt, sqrt

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
    """The result of a function for each group: NULL without values, and for a sample of one value."""
    counts = count.to_numpy(zero_copy_only=False)
    free = counts - function.endswith("SAMP")
    valid, root = free > 0, function.startswith("STDDEV")
    if pa.types.is_floating(total.type):
        sums, of_squares = total.to_numpy(zero_copy_only=False), squares.to_numpy(zero_copy_only=False)
        found = np.maximum(of_squares - sums * sums / np.where(valid, counts, 1), 0.0) / np.where(valid, free, 1)
        return pa.array(np.sqrt(found) if root else found, mask=~valid)
    groups = list(zip(counts.tolist(), total.to_pylist(), squares.to_pylist(), free.tolist(), strict=True))
    if pa.types.is_integer(total.type):
        whole = [(int(q) - s**2 // n) // by if by > 0 else None for n, s, q, by in groups]
        return pa.array([isqrt(each) if root and each is not None else each for each in whole], pa.decimal128(38, 0))
    exact = [float((Fraction(q) - Fraction(s) ** 2 / n) / by) if by > 0 else None for n, s, q, by in groups]
    return pa.array([sqrt(each) if root and each is not None else each for each in exact], pa.float64())
