"""Order-preserving integers for values, used to compare, sort and deduplicate columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.runtime.columnar.leaves import numbers
from forkpoint.runtime.columnar.segments import Numbers, run_starts
from forkpoint.runtime.exchange.batch import Longs
from forkpoint.types import TypeInformation

_WHOLE = ("byte", "short", "int", "long", "boolean")
_FLOATS = ("float", "double")
_TIMES = ("date", "time", "timestamp", "instant", "duration")
_TEXTS = ("string", "char", "bytes")  # Python compares code points, which is the byte order of UTF-8
NUMBERS = (*_WHOLE, *_FLOATS)
ORDERED = (*NUMBERS, *_TIMES, *_TEXTS)
"""Kinds whose values have the same equality and order in columns as in Python."""

_LARGEST = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Ordered:
    """Two arrays of one type as integers. ``back`` converts such integers to an array."""

    new: Longs
    saved: Longs
    back: Callable[[Longs], pa.Array]

    def paired(self, groups: Longs, saved_groups: Longs, *, descending: bool = False) -> Paired:
        """The values paired with their groups, saved values first. ``descending``: the order within a group."""
        ranks, back = np.concatenate((self.saved, self.new)), self.back
        group = np.concatenate((saved_groups, groups))
        low, high = int(ranks.min()), int(ranks.max())
        if (int(group.max()) + 1) * (high - low + 2) >= 2**62:
            unique, ranks = np.unique(ranks, return_inverse=True)
            low, high, back = 0, len(unique) - 1, lambda found: self.back(unique[found])
        width = high - low + 1
        pairs = group * width + (high - ranks if descending else ranks - low)
        return Paired(pairs, width, lambda found: back(high - found if descending else found + low))


@dataclass(frozen=True)
class Paired:
    """One integer for each pair of group and value. ``back`` converts the value parts to an array."""

    numbers: Longs
    width: int
    back: Callable[[Longs], pa.Array]

    def sorted(self) -> Paired:
        return replace(self, numbers=np.sort(self.numbers))

    def unique(self) -> Paired:
        """The distinct pairs, of sorted pairs."""
        return replace(self, numbers=self.numbers[run_starts(self.numbers)])

    @property
    def groups(self) -> Longs:
        return self.numbers // self.width

    def values(self, numbers: Longs) -> pa.Array:
        """The values of these pairs."""
        return self.back(numbers % self.width)


def ordered(new: pa.Array, saved: pa.Array, type: TypeInformation, *, as_written: bool = False) -> Ordered | None:
    """None for floats that Python compares differently: NaN and -0.0.

    Both arrays are columns of the type without nulls. ``as_written``: in the saved order of a set, which for floats is the
    order of their bytes.
    """
    arrow = type.arrow_type
    if type.kind in _TEXTS:
        return _texts(pa.concat_arrays([saved, new]), len(saved))
    if type.kind in _FLOATS:
        return _floats(numbers(new), numbers(saved), arrow, as_written=as_written)
    if type.kind in _TIMES:
        bits = pa.int32() if arrow.bit_width == 32 else pa.int64()
        return Ordered(_whole(new.view(bits)), _whole(saved.view(bits)), lambda ranks: pa.array(ranks, bits).view(arrow))
    if type.kind == "boolean":
        return Ordered(_whole(new), _whole(saved), lambda ranks: pa.array(ranks == 1))
    return Ordered(_whole(new), _whole(saved), lambda ranks: pa.array(ranks, arrow))


def _whole(array: pa.Array) -> Longs:
    return np.asarray(numbers(array)).astype(np.int64, copy=False)


def _texts(joined: pa.Array, saved: int) -> Ordered:
    encoded = joined.dictionary_encode()
    order = pc.sort_indices(encoded.dictionary)
    ranks = np.empty(len(order), np.int64)
    ranks[numbers(order)] = np.arange(len(order))
    found, dictionary = ranks[numbers(encoded.indices)], encoded.dictionary.take(order)
    return Ordered(found[saved:], found[:saved], lambda ranks: dictionary.take(pa.array(ranks)))


def _floats(new: Numbers, saved: Numbers, arrow: pa.DataType, *, as_written: bool) -> Ordered | None:
    if incomparable(new) or incomparable(saved):
        return None

    def converted(bits: Longs) -> Longs:
        """Float bits to integers in the same order, or back: the function is its own inverse."""
        return bits ^ np.int64(-_LARGEST - 1) if as_written else np.where(bits < 0, bits ^ _LARGEST, bits)

    found, old = (converted(values.astype(np.float64).view(np.int64)) for values in (new, saved))
    return Ordered(found, old, lambda ranks: pa.array(converted(ranks).view(np.float64)).cast(arrow))


def incomparable(values: Numbers) -> bool:
    """Whether Python and numpy might compare these values differently."""
    return values.dtype.kind == "f" and bool((np.isnan(values) | ((values == 0) & np.signbit(values))).any())
