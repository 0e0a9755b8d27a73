"""A user's aggregate functions: their accumulators are columns of state like any other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forkpoint.relational.aggregation import kept
from forkpoint.relational.calls import AggregateCall
from forkpoint.relational.functions.user import Form
from forkpoint.relational.functions.user_columns import Opened, column_given, objects_of
from forkpoint.relational.types import SqlType
from forkpoint.runtime.operators.base import NOT_USERS, shorten
from forkpoint.types import Types

Longs = npt.NDArray[np.int64]
_ANY = Types.PICKLED_BYTE_ARRAY()


@dataclass(frozen=True)
class Aggregator(Opened, ABC):
    """An opened aggregate function. Values are structs of the arguments; null for a row that does not count."""

    @abstractmethod
    def accumulated(
        self, of: SqlType, types: Sequence[SqlType], values: pa.Array, weights: Longs | None, starts: Longs, saved: pa.Array
    ) -> pa.Array:
        """The accumulator, of this type, of each group with its rows added, or taken back where the weight is negative.
        ``types``: of the arguments. See ``accumulators.accumulated``."""

    @abstractmethod
    def merged(self, of: SqlType, accumulators: pa.Array, starts: Longs) -> pa.Array:
        """The accumulators from ``starts[i]`` to ``starts[i + 1]`` as one, for each i."""

    @abstractmethod
    def results(self, call: AggregateCall, accumulators: pa.Array) -> pa.Array:
        """The result of each accumulator."""


class General(Aggregator):
    """A SqlAggregateFunction, called for each row. What ``accumulate()``, ``retract()`` and ``merge()`` return takes the
    accumulator's place, unless it is None."""

    def accumulated(
        self, of: SqlType, types: Sequence[SqlType], values: pa.Array, weights: Longs | None, starts: Longs, saved: pa.Array
    ) -> pa.Array:
        counts = np.ones(len(values), np.int64) if weights is None else weights
        counts = np.where(values.is_valid().to_numpy(zero_copy_only=False), counts, 0)
        columns = [objects_of(column, type) for column, type in zip(values.flatten(), types, strict=True)]
        rows, numbers = list(zip(*columns, strict=True)), counts.tolist()
        found = [
            self._with_rows(accumulator, rows[start:stop], numbers[start:stop])
            for accumulator, (start, stop) in zip(self._loaded(saved, of), pairwise(starts.tolist()), strict=True)
        ]
        return self._stored(found, of)

    def _loaded(self, accumulators: pa.Array, of: SqlType) -> list[Any]:
        if self.function.stored is not None:
            return [None if each is None else _ANY.decode(each) for each in accumulators.to_pylist()]
        return objects_of(accumulators, of)

    def _stored(self, accumulators: list[Any], of: SqlType) -> pa.Array:
        if self.function.stored is not None:
            return pa.array([_ANY.encode(self.function.stored(each)) for each in accumulators], of.arrow_type)
        return self.converted(accumulators, of, "accumulator")

    def _with_rows(self, accumulator: Any, rows: Sequence[Any], counts: Sequence[int]) -> Any:
        body, row = self.function.body, None
        try:
            found = body.create_accumulator() if accumulator is None else accumulator
            for row, count in zip(rows, counts, strict=True):
                change = body.accumulate if count > 0 else body.retract
                for _ in range(abs(count)):
                    returned = change(found, *row)
                    found = found if returned is None else returned
        except NOT_USERS:
            raise
        except BaseException as error:
            raise self.failure(error, f"arguments {shorten(row)}") from error
        return found

    def merged(self, of: SqlType, accumulators: pa.Array, starts: Longs) -> pa.Array:
        given = self._loaded(accumulators, of)
        return self._stored([self._as_one(given[start:stop]) for start, stop in pairwise(starts.tolist())], of)

    def _as_one(self, accumulators: Sequence[Any]) -> Any:
        found, *others = accumulators
        try:
            returned = self.function.body.merge(found, others) if others else None
        except NOT_USERS:
            raise
        except BaseException as error:
            raise self.failure(error, f"accumulators {shorten(accumulators)}") from error
        return found if returned is None else returned

    def results(self, call: AggregateCall, accumulators: pa.Array) -> pa.Array:
        assert call.accumulator is not msgspec.UNSET
        found: list[Any] = []
        given = self._loaded(accumulators, call.accumulator)
        try:
            found += map(self.function.body.get_value, given)
        except NOT_USERS:
            raise
        except BaseException as error:
            raise self.failure(error, f"accumulator {shorten(given[len(found)])}") from error
        return self.converted(found, call.type)


class OfColumns(Aggregator):
    """A function of all values of a group, as columns: the accumulator is an ARRAY of them."""

    def accumulated(
        self, of: SqlType, types: Sequence[SqlType], values: pa.Array, weights: Longs | None, starts: Longs, saved: pa.Array
    ) -> pa.Array:
        return kept.with_values(of, saved, values, weights, starts)

    def merged(self, of: SqlType, accumulators: pa.Array, starts: Longs) -> pa.Array:
        return kept.merged(of, accumulators, starts)

    def results(self, call: AggregateCall, accumulators: pa.Array) -> pa.Array:
        found: list[Any] = []
        form = self.function.form
        stops, columns = np.cumsum(kept.lengths(accumulators)).tolist(), accumulators.flatten().flatten()
        start = 0
        try:
            for stop in stops:
                given = [column_given(column.slice(start, stop - start), form) for column in columns]
                found.append(_plain(self.function.body.eval(*given), form))
                start = stop
        except NOT_USERS:
            raise
        except BaseException as error:
            raise self.failure(error, f"{stops[len(found)] - start} rows") from error
        return self.converted(found, call.type)


def _plain(value: Any, form: Form) -> Any:
    """A result of Arrow or pandas as a value of Python."""
    if form == "arrow":
        return value.as_py() if isinstance(value, pa.Scalar) else value
    import pandas as pd

    if pd.api.types.is_scalar(value) and pd.isna(value):
        return None
    return value.item() if isinstance(value, np.generic) else value
