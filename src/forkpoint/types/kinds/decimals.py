"""`Types.DECIMAL`: decimal numbers with a fixed precision and scale, which columns hold as Arrow's decimal128."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal, Inexact, InvalidOperation
from functools import cached_property
from typing import Any

import pyarrow as pa

from forkpoint.errors import TypeNotSupported
from forkpoint.types.acceptance import Source
from forkpoint.types.information import JsonObject
from forkpoint.types.kinds.scalars import ScalarSpec, ScalarType
from forkpoint.types.wire import shown

MAX_PRECISION = 38


@dataclass(frozen=True, eq=False, repr=False)
class DecimalType(ScalarType):
    """Every value has exactly ``scale`` digits after the point, so equal values have equal bytes."""

    precision: int
    scale: int

    def describe(self) -> JsonObject:
        return {"kind": self.name, "precision": self.precision, "scale": self.scale}

    @cached_property
    def _spec(self) -> ScalarSpec:
        arrow = pa.decimal128(self.precision, self.scale)
        return ScalarSpec(
            f"DECIMAL({self.precision}, {self.scale})",
            Decimal,
            arrow,
            lambda values: pa.array(values, arrow),
            lambda array: array.to_pylist(),
            lower=self._scaled,
            takes=(int,),
        )

    def _scaled(self, value: Any) -> Decimal:
        return self._quantized(value, Context(prec=self.precision, traps=[Inexact, InvalidOperation]))

    def rounded(self, value: Decimal | int) -> Decimal:
        """The value with the type's scale, rounded half up as Flink does. Raises TypeNotSupported if it does not fit."""
        return self._quantized(value, Context(prec=self.precision, rounding=ROUND_HALF_UP, traps=[InvalidOperation]))

    def _quantized(self, value: Any, context: Context) -> Decimal:
        try:
            found = context.quantize(Decimal(value), Decimal(1).scaleb(-self.scale))
        except (Inexact, InvalidOperation):
            found = Decimal("NaN")
        if not found.is_finite():
            raise TypeNotSupported(f"{shown(value)} does not fit into {self!r}; round it, or declare more digits")
        return found if found else abs(found)

    def _is_exact(self, value: Decimal) -> bool:
        sign, digits, exponent = value.as_tuple()
        return exponent == -self.scale and len(digits) <= self.precision and not (sign and digits == (0,))

    def _test(self, value: str, source: Source) -> str:
        first, v = source.once(value)
        return f"type({first}) is {source.bind(Decimal)} and {source.bind(self._is_exact)}({v})"

    @cached_property
    def all_exact(self) -> Callable[[Sequence[Any]], bool]:
        return lambda values: {Decimal}.issuperset(map(type, values)) and all(map(self._is_exact, values))

    def __reduce__(self) -> tuple[Any, ...]:
        return decimal, (self.precision, self.scale)


def decimal(precision: int, scale: int = 0) -> DecimalType:
    """The type of decimals with these digits. Raises TypeNotSupported."""
    if not 1 <= precision <= MAX_PRECISION or not 0 <= scale <= precision:
        raise TypeNotSupported(
            f"DECIMAL({precision}, {scale}): give 1 to {MAX_PRECISION} digits, of which 0 to all are after the point"
        )
    return DecimalType("decimal", precision, scale)
