"""Outputs by key are put in order by the rows that they come from: the same order as that of their coordinates."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from forkpoint.runtime.exchange.batch import Batch, DerivedBatch

_SIZE = st.integers(1, 8)
_OUTPUTS = _SIZE.flatmap(
    lambda size: st.tuples(
        st.just(size),
        st.one_of(st.permutations(range(size)), st.lists(st.integers(0, size - 1))),  # filtered, or several of one
    )
)


@given(outputs=_OUTPUTS, ordered=st.booleans(), clock=st.booleans())
def test_outputs_are_ordered_as_by_their_coordinates(outputs: tuple[int, list[int]], ordered: bool, clock: bool) -> None:
    size, rows = outputs
    sequence = np.arange(size) if ordered else np.arange(size)[::-1]
    inputs = Batch(size, 0, 0, sequence.copy(), values=list(range(size)), ordered=ordered)
    found = DerivedBatch.of(inputs, np.array(rows, dtype=np.int64), values=list(enumerate(rows)))
    if clock:  # an operator in the stage has assigned watermarks since
        found.positions = -np.arange(len(rows))
    places = [(-i if clock else 0, int(sequence[row])) for i, row in enumerate(rows)]
    result = found.in_order()
    assert result.values == [(i, rows[i]) for i in sorted(range(len(rows)), key=places.__getitem__)]
    assert result.sequence.tolist() == [sequence[row] for _, row in result.values]
