"""Rows that are added up before they are sent to their groups."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forkpoint.relational.aggregation.accumulators import ROWS, Accumulator, accumulated, adds_parts, merging, of_each
from forkpoint.relational.expressions import Column
from forkpoint.relational.operators.parts import parts_of_groups, repeats
from forkpoint.relational.types import BIGINT, DOUBLE, STRING, SqlType, decimal_type

NUMBERS, PRICES = Column("n", BIGINT), Column("p", decimal_type((10, 2)))
ACCUMULATORS = [
    ROWS,
    Accumulator("count_n", "count", NUMBERS, BIGINT.with_null(False)),
    Accumulator("sum_n", "sum", NUMBERS, BIGINT.with_null(False)),
    Accumulator("min_n", "min", NUMBERS, BIGINT),
    Accumulator("max_t", "max", Column("t", STRING), STRING),
    Accumulator("sum_p", "sum", PRICES, decimal_type((38, 2)).with_null(False)),
]
TYPES: dict[str, SqlType] = {"n": BIGINT, "t": STRING, "p": PRICES.type}
ROWS_OF_GROUPS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.none() | st.integers(-100, 100),
        st.none() | st.text("ab", max_size=2),
        st.none() | st.integers(-999, 999).map(lambda n: Decimal(n) / 100),
    ),
    min_size=1,
    max_size=12,
)


def grouped(accumulator: Accumulator, groups: np.ndarray, values: pa.Array | None) -> list[Any]:
    """The accumulator of each of four groups, some of them without rows."""
    present = np.unique(groups)
    order = np.argsort(groups, kind="stable")
    starts = np.append(np.searchsorted(groups[order], present), len(groups))
    taken = None if values is None else values.take(pa.array(order))
    found = accumulated(accumulator, taken, None, starts, pa.nulls(len(present), accumulator.type.arrow_type))
    return list(zip(present.tolist(), found.to_pylist(), strict=True))


@given(ROWS_OF_GROUPS, st.data())
def test_parts_of_rows_become_what_the_rows_do(rows: list[tuple[Any, ...]], data: Any) -> None:
    """Whether rows are added up first, which may make several parts of a group, or each is a part."""
    groups = np.array([row[0] for row in rows])
    which = data.draw(st.lists(st.integers(0, 1), min_size=len(rows), max_size=len(rows)))
    columns = {name: pa.array([row[i] for row in rows], of.arrow_type) for i, (name, of) in enumerate(TYPES.items(), 1)}
    for each in ACCUMULATORS:
        assert adds_parts(each)
        values = None if each.input is None else columns[str(each.input)]
        expected = grouped(each, groups, values)
        table = pa.RecordBatch.from_pydict({"of": pa.array(groups), **({} if values is None else {each.name: values})})
        first_of, (parts,) = parts_of_groups([each], table, [table.column("of"), pa.array(which)])
        of_parts = groups if first_of is None else groups[first_of]
        assert grouped(merging(each), of_parts, parts) == expected
        assert grouped(merging(each), groups, of_each(each, values, len(rows))) == expected


def test_sums_of_doubles_depend_on_their_order() -> None:
    assert not adds_parts(Accumulator("sum_d", "sum", Column("d", DOUBLE), DOUBLE.with_null(False)))


@pytest.mark.parametrize(
    ("keys", "rows", "hot", "expected"),
    [
        (1, 2, 0, True),
        (100, 60_000, 0, True),
        (10_000, 60_000, 0, True),  # though few rows of a sample have the same
        (1_000_000, 60_000, 0, False),
        (5_000, 1_500, 0, False),
        (1_000_000, 60_000, 0.5, True),  # one key has half of the rows
        (1_000_000, 60_000, 0.1, False),
        (10_000, 60_000, 0.1, True),
    ],
)
def test_rows_are_added_up_if_keys_repeat(keys: int, rows: int, hot: float, expected: bool) -> None:
    random = np.random.default_rng(3)
    drawn = np.where(random.random(rows) < hot, keys, random.integers(0, keys, rows))
    assert repeats([pa.array(drawn)], rows) is expected
    assert repeats([], rows)
