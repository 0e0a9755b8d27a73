"""OVER: functions of a row and of the others of its partition; pure functions over columns.

A partition with new or removed rows is computed again as a whole, and the difference is what has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.relational.aggregation.accumulators import AGGREGATES, accumulated, needs, result
from forkpoint.relational.calls import AggregateCall, Frame, Order, OverCall
from forkpoint.relational.changes import Longs, Owned, consolidated
from forkpoint.relational.evaluation import evaluate
from forkpoint.relational.operators.joins.pairs import Rows
from forkpoint.relational.plan import Over
from forkpoint.runtime.columnar.codes import codes_of, comparable
from forkpoint.runtime.columnar.segments import run_starts

Bools = npt.NDArray[np.bool_]
_AT_ONCE = 1 << 20  # rows of frames


def computed(over: Over, before: Rows, added: Rows) -> Owned:
    """What becomes of the result as rows are added to partitions: its columns, the weight of each row, and its partition.

    ``before``: all rows of the partitions of ``added``.
    """
    old = _result(over, before.columns, before.weights, before.owners)
    after = before.followed_by(added)
    net, weights, owners = after.columns, after.weights, after.owners
    if (weights < 0).any():
        owner = "$owner"
        net, weights, owners = consolidated(net.append_column(owner, pa.array(owners)), weights, owners)
        net = net.drop_columns([owner])
    new = _result(over, net, weights, owners)
    table = pa.concat_batches([old[0], new[0]])
    return table, np.concatenate([-old[1], new[1]]), np.concatenate([old[2], new[2]])


def _result(over: Over, columns: pa.RecordBatch, weights: Longs, owners: Longs) -> Owned:
    """The rows of whole partitions with the columns of the calls."""
    if (weights != 1).any():
        rows = np.repeat(np.arange(len(owners)), weights)
        columns, owners = columns.take(pa.array(rows)), owners[rows]
    partitions = Partitions.of(over.order, columns, owners)
    table = partitions.table
    for call in over.calls:
        table = table.append_column(over.name_of(call), value(call, partitions))
    return table, np.ones(len(owners), np.int64), partitions.owners


def leading(over: Over, rows: Rows, limit: int) -> Longs:
    """The indices of the rows that are among the first so many of their partition; of rows that are there several times, if one
    of these is."""
    order = _Sorted.of(over.order, rows.columns, rows.owners)
    weights, firsts = rows.weights[order.rows], np.flatnonzero(order.starts)
    before = np.cumsum(weights) - weights
    before -= np.repeat(before[firsts], np.diff(np.append(firsts, len(weights))))
    return np.sort(order.rows[before < limit])


@dataclass(frozen=True)
class _Sorted:
    """``rows``: the indices of rows in the order of their partitions, and of these what they are ordered by. ``starts``: whether
    a partition begins with the row there, ``differ``: whether its order differs from that of the one before."""

    rows: Longs
    starts: Bools
    differ: Bools

    @staticmethod
    def of(order: Sequence[Order], table: pa.RecordBatch, owners: Longs) -> _Sorted:
        """Rows of equal order are ordered by their values, so that the result does not depend on when they came."""
        ranks = [_ranks(evaluate(each.of, table), each) for each in order]
        rows = np.lexsort((*reversed(ranks), owners))
        if not len(rows):
            return _Sorted(rows, np.zeros(0, bool), np.zeros(0, bool))
        starts = run_starts(owners[rows])
        differ = np.logical_or.reduce([starts, *(run_starts(rank[rows]) for rank in ranks)])
        peers = np.cumsum(differ) - 1
        tied = np.flatnonzero(np.bincount(peers)[peers] > 1)
        if len(tied):
            of_tied = table.take(pa.array(rows[tied]))
            ties = [numbers for column in of_tied.columns for numbers in _tie_breakers(column)]
            rows[tied] = rows[tied][np.lexsort((*reversed(ties), peers[tied]))]
        return _Sorted(rows, starts, differ)


@dataclass(frozen=True)
class Partitions:
    """Rows of partitions in their order. ``first``, ``end``: where each row's partition begins and ends. ``peers``: where the
    rows of equal order begin. ``order``: what they are ordered by."""

    table: pa.RecordBatch
    owners: Longs
    first: Longs
    end: Longs
    peers: Longs
    order: Sequence[Order]

    @staticmethod
    def of(order: Sequence[Order], table: pa.RecordBatch, owners: Longs) -> Partitions:
        found = _Sorted.of(order, table, owners)
        rows, of_row = found.rows, np.cumsum(found.starts) - 1
        bounds = np.append(np.flatnonzero(found.starts), len(rows))
        peers = np.flatnonzero(found.differ)[np.cumsum(found.differ) - 1]
        return Partitions(table.take(pa.array(rows)), owners[rows], bounds[of_row], bounds[of_row + 1], peers, order)


def _ranks(column: pa.Array, order: Order | None) -> Longs:
    """Numbers in the order of a column's values, equal for equal values."""
    if not len(column) or pa.types.is_null(column.type):
        return np.zeros(len(column), np.int64)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    first = order is None or order.nulls_first
    kind = "descending" if order is not None and order.descending else "ascending"
    found = np.asarray(pc.rank(column, sort_keys=kind, tiebreaker="dense").to_numpy(zero_copy_only=False)).astype(np.int64)
    return np.where(column.is_null().to_numpy(zero_copy_only=False), 0 if first else len(column) + 1, found)


def _tie_breakers(column: pa.Array) -> list[Longs]:
    """Numbers whose order, one after the other, depends on a column's values only, and differs for values with other bits."""
    if pa.types.is_struct(column.type) and column.type.num_fields:
        return [numbers for part in (column.is_valid(), *column.flatten()) for numbers in _tie_breakers(part)]
    if pa.types.is_nested(column.type):
        column = pa.array([repr(comparable(each)) for each in column.to_pylist()], pa.string())
    found = [_ranks(column, None)]
    if pa.types.is_floating(column.type):  # 0.0 and -0.0 have one rank
        found.append(codes_of([column.fill_null(0)]))
    return found


# -- calls -------------------------------------------------------------------------------------------------------------


def value(call: OverCall, rows: Partitions) -> pa.Array:
    """The value of a call for each row."""
    if call.function in _NUMBERS:
        return pa.array(_NUMBERS[call.function](rows)).cast(call.type.arrow_type)
    if call.function == "NTILE":
        return pa.array(_ntile(rows, evaluate(call.arguments[0], rows.table)), pa.int64())
    if call.function in ("LAG", "LEAD"):
        return _neighbour(call, rows)
    return _aggregate(call, rows)


def _row_number(rows: Partitions) -> Longs:
    return np.arange(len(rows.owners)) - rows.first + 1


def _rank(rows: Partitions) -> Longs:
    return rows.peers - rows.first + 1


def _dense_rank(rows: Partitions) -> Longs:
    begins = np.arange(len(rows.owners)) == rows.peers
    count: Longs = np.cumsum(begins)
    return count - (count[rows.first] if len(count) else count) + 1


def _percent_rank(rows: Partitions) -> npt.NDArray[np.float64]:
    return np.asarray((_rank(rows) - 1) / np.maximum(rows.end - rows.first - 1, 1))


def _cume_dist(rows: Partitions) -> npt.NDArray[np.float64]:
    return (_ends(rows) - rows.first) / (rows.end - rows.first)


def _ntile(rows: Partitions, count: pa.Array) -> Longs:
    """The first groups have one row more than the others if the rows do not divide."""
    groups = count.to_numpy()
    at = _row_number(rows) - 1
    size, more = np.divmod(rows.end - rows.first, groups)
    large = more * (size + 1)
    found: Longs = np.where(at < large, at // (size + 1), more + (at - large) // np.maximum(size, 1)) + 1
    return found


_NUMBERS: Mapping[str, Callable[[Partitions], npt.NDArray[Any]]] = {
    "ROW_NUMBER": _row_number,
    "RANK": _rank,
    "DENSE_RANK": _dense_rank,
    "PERCENT_RANK": _percent_rank,
    "CUME_DIST": _cume_dist,
}


def _neighbour(call: OverCall, rows: Partitions) -> pa.Array:
    """The value of the row ``offset`` rows before (LAG) or after (LEAD) in the partition, else the default."""
    of, *more = call.arguments
    values = evaluate(of, rows.table).cast(call.type.arrow_type)
    offset = evaluate(more[0], rows.table).fill_null(0).to_numpy(zero_copy_only=False) if more else 1
    at = np.arange(len(rows.owners)) + (offset if call.function == "LEAD" else -offset)
    inside = (at >= rows.first) & (at < rows.end)
    found = values.take(pa.array(np.where(inside, at, 0), mask=~inside))
    if len(more) < 2:
        return found
    return pc.if_else(pa.array(inside), found, evaluate(more[1], rows.table).cast(call.type.arrow_type))


def _aggregate(call: OverCall, rows: Partitions) -> pa.Array:
    """An aggregate over each row's frame."""
    frame = call.frame
    assert frame is not None
    first, end = _bounds(frame, rows)
    if frame.before is None and frame.after is None:  # one value for each partition
        starts = np.unique(rows.first)
        values = _of_frames(call, rows.table, starts, rows.end[starts])
        return values.take(pa.array(np.searchsorted(starts, rows.first)))
    parts, at, lengths = [], 0, np.cumsum(end - first)
    while at < len(first):
        done = int(lengths[at - 1]) if at else 0
        stop = max(at + 1, int(np.searchsorted(lengths, done + _AT_ONCE, "right")))
        parts.append(_of_frames(call, rows.table, first[at:stop], end[at:stop]))
        at = stop
    return pa.concat_arrays(parts) if parts else pa.array([], call.type.arrow_type)


def _bounds(frame: Frame, rows: Partitions) -> tuple[Longs, Longs]:
    """Where each row's frame begins and ends."""
    here = np.arange(len(rows.owners))
    if frame.unit == "ROWS":
        first = rows.first if frame.before is None else np.maximum(here - frame.before, rows.first)
        end = rows.end if frame.after is None else np.minimum(here + frame.after + 1, rows.end)
        return first, np.maximum(end, first)
    after_peers = _ends(rows)
    first = rows.first if frame.before is None else rows.peers
    end = rows.end if frame.after is None else after_peers
    if frame.before:
        first = _at_distance(rows, frame.before)
    return first, end


def _ends(rows: Partitions) -> Longs:
    """Where the rows of equal order end."""
    begins = np.append(np.unique(rows.peers), len(rows.owners))
    found: Longs = begins[np.searchsorted(begins, rows.peers) + 1] if len(rows.owners) else rows.peers
    return found


def _at_distance(rows: Partitions, distance: int) -> Longs:
    """The first row of the partition that is at most ``distance`` before each row, in what they are ordered by."""
    (order,) = rows.order
    column = evaluate(order.of, rows.table)
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("us", getattr(column.type, "tz", None))).cast(pa.int64())
    known = column.is_valid().to_numpy(zero_copy_only=False)
    values = column.fill_null(0).to_numpy(zero_copy_only=False)
    values = -values if order.descending else values
    found = rows.peers.copy()
    for start in np.unique(rows.first).tolist():
        rows_of = np.flatnonzero(known[start : rows.end[start]]) + start
        found[rows_of] = rows_of[0] + np.searchsorted(values[rows_of], values[rows_of] - distance) if len(rows_of) else 0
    return found


def _of_frames(call: OverCall, table: pa.RecordBatch, first: Longs, end: Longs) -> pa.Array:
    """An aggregate over the rows from ``first`` to ``end``, for each pair."""
    lengths = end - first
    rows = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths) + np.repeat(first, lengths)
    argument = call.arguments[0] if call.arguments else None
    of = AggregateCall(call.function, argument, None, call.type, accumulator=call.accumulator)
    some = np.flatnonzero(lengths)
    starts = np.append(np.cumsum(lengths)[some] - lengths[some], len(rows))
    found = []
    for accumulator in needs(of, updating=False):
        none = pa.nulls(len(some), accumulator.type.arrow_type)
        values = None if accumulator.input is None else evaluate(accumulator.input, table).take(pa.array(rows))
        found.append(accumulated(accumulator, values, None, starts, none) if len(some) else none)
    values = result(of, found)
    if len(some) == len(lengths):
        return values
    at = np.full(len(lengths), -1)
    at[some] = np.arange(len(some))
    found_all = values.take(pa.array(at, mask=at < 0))
    return found_all.fill_null(0) if call.function == "COUNT" else found_all


FUNCTIONS = (*_NUMBERS, "NTILE", "LAG", "LEAD", *AGGREGATES)
