"""Stage 0: reads sources, assigns timestamps, runs the stateless chain and routes by key, batch by batch."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any
from zlib import crc32

import msgspec
import numpy as np
import pyarrow as pa

from forkpoint.contract.source import ReaderContext, SourceBatch, SourceReader, SplitRange
from forkpoint.errors import JobFailed
from forkpoint.graph.job import InEdge, Operator
from forkpoint.graph.specs import DataFrameSpec, SinkSpec, TimestampsSpec, WatermarkSpec
from forkpoint.graph.transformations import Broadcast
from forkpoint.runtime.event_time.timestamps import PieceClock, open_clock, stamp
from forkpoint.runtime.event_time.watermarks import MAX_MS, MIN_MS, Window, element_positions
from forkpoint.runtime.exchange.batch import Batch, for_each, interleaved, pick
from forkpoint.runtime.exchange.control import CommitRow, encode_progress
from forkpoint.runtime.exchange.grouping import route, targets_of
from forkpoint.runtime.exchange.wire import PROGRESS, ChunkRow, Piece, Pieces, encode_chunk
from forkpoint.runtime.expressions.stamps import computed_stamps
from forkpoint.runtime.operators.base import Epoch, user_code
from forkpoint.runtime.operators.emission import Collector
from forkpoint.runtime.tasks.task import Task
from forkpoint.runtime.tasks.worker import worker_for

TOGETHER_ROWS = 5_000
_PIECE_SHIFT = 40  # rows of one task in one epoch: up to 2**40

Run = tuple[Sequence[tuple[SplitRange, int]], SourceBatch[Any]]
"""Successive elements, and how many of them each range has."""


@dataclass
class SourceTask(Task):
    """One task of stage 0 in one epoch."""

    clocks: dict[Piece, PieceClock] = field(default_factory=dict)
    elements: Counter[int] = field(default_factory=Counter)  # so far, by source
    records_in: Counter[str] = field(default_factory=Counter)
    records_out: Counter[str] = field(default_factory=Counter)
    used: dict[str, int] = field(default_factory=dict)  # the operators that have run, by uid
    latest: dict[tuple[int, str], PieceClock] = field(default_factory=dict)
    begun: set[Piece] = field(default_factory=set)
    needs_whole_splits: set[int] = field(default_factory=set)
    collectors: dict[int, Collector] = field(default_factory=dict)
    _on_watermark_read: Callable[[], None] | None = None

    def begin(self, operator: Operator, split: str, piece: int) -> None:
        """Start a piece of a source's split. Even without elements it makes progress, also at timestamp assigners.

        A function that reads the watermark sees the watermark of this task's pieces: the split's watermark, unless other tasks
        read pieces ahead of this piece.
        """
        self.clock.switch(operator.uid)
        pieces = [self._watermark_piece(operator, split, piece)]
        for assigner in self.spec.graph.assigners:
            before = self.spec.graph.origins_before(assigner)
            pieces += [self._piece_at(assigner, upstream) for upstream in pieces if upstream.origin in before]
        known = piece == 0 or Piece(operator.id, split, piece - 1) in self.begun
        if known:
            self.begun.add(Piece(operator.id, split, piece))
        self._on_watermark_read = None if known else partial(self.needs_whole_splits.add, operator.id)

    def feed(self, operator: Operator, pieces: Pieces, counts: Sequence[int], run: SourceBatch[Any]) -> None:
        """Process a run of a source's elements, in order: so many of each piece. A run with side outputs has one piece."""
        elements, size = run.elements, len(run.elements)
        start = self._numbered(operator, pieces[0].piece, size + sum(len(side.elements) for side in run.sides))
        numbers, of_sides = interleaved(start, size, [side.before for side in run.sides])
        splits = 0 if len(pieces) == 1 else np.repeat(np.arange(len(pieces)), counts)
        table = elements if isinstance(elements, pa.RecordBatch) else None
        if table is not None:
            self.bytes_in[operator.uid] += table.nbytes
        values = None if isinstance(elements, pa.RecordBatch) else self._collector(operator).take_all(elements)
        batch = Batch(size, 0, splits, numbers, values=values, table=table, type=operator.output_type, timestamps=run.timestamps)
        origins = [self._watermark_piece(operator, split, piece) for _, split, piece in pieces]
        clocks = [self.clocks[origin] for origin in origins]
        stamp(batch, clocks)
        positions = batch.positions
        if not isinstance(positions, int) and run.sides:
            positions = np.append(positions, element_positions(np.array([clocks[0].watermark_ms])))
        self._emit(operator, batch, origins)
        for side, sequence in zip(run.sides, of_sides, strict=True):
            taken = self._collector(operator).take_all(side.elements, side.tag)
            side_batch = Batch(
                len(taken),
                pick(positions, side.before),
                0,
                sequence,
                values=taken,
                type=side.tag.type_info,
                timestamps=side.timestamps,
            )
            self._emit(operator, side_batch, origins, side.tag.tag_id)

    def _numbered(self, operator: Operator, piece: int, size: int) -> int:
        """The sequence number of the first of ``size`` more elements of pieces with this number. No other element of the source
        in this task has it."""
        start = (piece << _PIECE_SHIFT) + self.elements[operator.id]
        self.elements[operator.id] += size
        self.records_in[operator.uid] += size
        return start

    def _collector(self, operator: Operator) -> Collector:
        collector = self.collectors.get(operator.id)
        if collector is None:
            collector = self.collectors[operator.id] = Collector(operator)
        return collector

    def _watermark_piece(self, operator: Operator, split: str, piece: int) -> Piece:
        """The piece whose watermark the elements have; creates its clock.

        A watermark generator covers all pieces of a split in this epoch, so they count as one piece.
        """
        assert isinstance(operator.spec, WatermarkSpec)
        strategy = operator.spec.strategy
        found = Piece(operator.id, split, piece if strategy.generator_factory is None else 0)
        if found not in self.clocks:
            start = self.context.splits.get(str(operator.id), {}).get(split)
            clock = self.clocks[found] = open_clock(
                operator.uid,
                strategy,
                operator.timestamp_column,
                start,
                computed_stamps(operator),
                periodic=self.spec.periodic_watermarks,
            )
            latest = self.latest.get((found.origin, split))
            if latest is not None:
                clock.watermark_ms = max(clock.watermark_ms, latest.watermark_ms)
            self.latest[found.origin, split] = clock
        return found

    def _piece_at(self, assigner: Operator, piece: Piece) -> Piece:
        """The piece of a timestamp assigner that corresponds to an upstream piece."""
        return self._watermark_piece(assigner, self.spec.graph.split_name(assigner, piece.origin, piece.split), piece.piece)

    def _emit(self, operator: Operator, batch: Batch, pieces: Pieces, tag: str | None = None) -> None:
        consumers = self.spec.graph.consumers_of(operator, tag) if batch.size else ()
        for (consumer, edge), elements in zip(consumers, for_each(batch, len(consumers)), strict=True):
            if edge.crosses:
                self._send(edge, elements, pieces, consumer.uid)
            else:
                self._run(consumer, elements, pieces)

    def _run(self, operator: Operator, batch: Batch, pieces: Pieces) -> None:
        caller = self.clock.switch(operator.uid)
        self.records_in[operator.uid] += batch.size
        self._process(operator, batch, pieces)
        self.clock.switch(caller)

    def _process(self, operator: Operator, batch: Batch, pieces: Pieces) -> None:
        if isinstance(operator.spec, SinkSpec):
            self.sink(operator).write(batch)
            return
        if isinstance(operator.spec, TimestampsSpec):
            graph = self.spec.graph
            if any(len(graph.consumers[e.upstream]) > 1 for e in operator.inputs):
                batch = batch.slice(0, batch.size)  # other consumers see the upstream timestamps
            origins = [self._piece_at(operator, piece) for piece in pieces]
            stamp(batch, [self.clocks[origin] for origin in origins])
            self._emit(operator, batch, origins)
            return
        instance = worker_for(self.spec).instance(operator, 0, self.context, self.attempt)
        epoch = Epoch(
            self.context.epoch,
            Window(MIN_MS, MIN_MS, MAX_MS),
            self.context.processing_time_ms,
            on_watermark_read=self._on_watermark_read,
            one_by_one=operator.uid in self.context.one_by_one,
            place=f"{pieces[0].origin}/{self.subtask}",
        )
        outputs = instance.run([batch], epoch)
        self.used[operator.uid] = operator.id
        self.records_out[operator.uid] += outputs.main.size
        for tag, output in ((None, outputs.main), *outputs.sides.items()):
            self._emit(operator, output, pieces, tag)

    def _send(self, edge: InEdge, batch: Batch, pieces: Pieces, consumer: str) -> None:
        parallelism = self.spec.parallelism
        if isinstance(edge.partitioning, Broadcast):
            if edge.partitioning.at_next_watermark:
                batch = self.clocks[pieces[0]].at_next_watermark(batch)
            blob = encode_chunk(batch, pieces)
            for target in range(parallelism):
                self.send(edge, target, blob)
            return
        targets = targets_of(batch, edge.partitioning, parallelism, self.spec.max_parallelism, consumer)
        if targets is None:
            of_splits = np.array([crc32(f"{piece.origin}/{piece.split}".encode()) % parallelism for piece in pieces])
            targets = of_splits[batch.splits]
        for target, part in route(batch, targets, parallelism) if np.ndim(targets) else [(int(targets), batch)]:
            self.send(edge, target, encode_chunk(part, pieces))
        batch.keys = None  # the next edge may have another key

    def finish(self) -> list[ChunkRow]:
        """The chunk rows, the progress of the splits, and the commit row."""
        self.clock.switch(None)
        progress = [clock.progress(*piece) for piece, clock in self.clocks.items()]
        commit = CommitRow(self.stage, self.subtask, self.attempt, progress=progress)
        commit.committables = self.committables()
        commit.records_in, commit.records_out = self.records_in, self.records_out
        commit.needs_whole_splits = sorted(self.needs_whole_splits)
        worker = worker_for(self.spec) if self.used else None
        user = {} if worker is None else {uid: worker.user_metrics(id, 0) for uid, id in self.used.items()}
        commit.measured = self.measured(user)
        targets = range(self.spec.parallelism if self.spec.graph.stages else 0)
        shared = encode_progress([msgspec.structs.replace(p, generator=None) for p in progress])
        return [*self.rows, *((target, PROGRESS, 0, shared) for target in targets), self.report(commit)]


def read_ranges(task: SourceTask, plan: bytes) -> None:
    """Read the ranges of native sources that the driver planned for this task."""
    readers: dict[int, SourceReader[Any]] = {}
    assigned: list[tuple[int, SplitRange]] = pickle.loads(plan)
    try:
        for operator_id, ranges in _together(assigned):
            operator = task.spec.graph.by_id[operator_id]
            reader = readers.get(operator_id)
            if reader is None:
                reader = readers[operator_id] = operator.source.create_reader()
                reader.open(ReaderContext(operator.uid, task.context.processing_time_ms))
            for range_ in ranges:
                task.begin(operator, range_.split, range_.piece)
            runs = _runs(operator, reader, ranges)
            for parts, run in runs if len(ranges) == 1 else _united(runs):
                pieces = [Piece(operator.id, range_.split, range_.piece) for range_, _ in parts]
                task.feed(operator, pieces, [size for _, size in parts], run)
    finally:
        for reader in readers.values():
            reader.close()


def _together(assigned: Iterable[tuple[int, SplitRange]]) -> Iterator[tuple[int, list[SplitRange]]]:
    """Successive ranges that are so short that each by itself would cost more than its elements: one batch has them all. They are
    beginnings of splits, since the watermark before another piece may be unknown here."""
    at, short, rows = -1, list[SplitRange](), 0
    for operator, range_ in assigned:
        size = TOGETHER_ROWS + 1 if range_.rows is None or range_.piece else range_.rows
        if short and (operator != at or rows + size > TOGETHER_ROWS):
            yield at, short
            short, rows = [], 0
        at, rows = operator, rows + size
        short.append(range_)
    if short:
        yield at, short


def _runs(operator: Operator, reader: SourceReader[Any], ranges: list[SplitRange]) -> Iterator[Run]:
    if len(ranges) > 1 and type(reader).read_together is SourceReader.read_together:
        for each in ranges:  # so that an error names its range
            yield from _runs(operator, reader, [each])
        return
    elements = reader.read_together(ranges)
    while True:
        with user_code(operator.uid, lambda: ranges[0] if len(ranges) == 1 else ranges):
            found = next(elements, None)
        if found is None:
            return
        parts, run = found
        yield _checked(operator, parts, run if isinstance(run, SourceBatch) else SourceBatch(run))


def _checked(operator: Operator, parts: Sequence[tuple[SplitRange, int]], run: SourceBatch[Any]) -> Run:
    size, told = len(run.elements), sum(count for _, count in parts)
    if size != told:
        raise JobFailed(
            f"operator {operator.uid!r}: read_together() gave {size} elements, and says that they are {told}; correct the reader"
        )
    if operator.output_type is None and isinstance(run.elements, pa.RecordBatch):
        raise JobFailed(
            f"operator {operator.uid!r}: the reader yields columns, but the source has no output_type() that names them; add it"
        )
    return parts, run


def _united(runs: Iterable[Run]) -> Iterator[Run]:
    """Short runs that follow one another, as far as they are alike and have no side outputs, as one."""
    held, rows = list[Run](), 0
    for run in runs:
        size = len(run[1].elements)
        if held and not (_alike(held[-1][1], run[1]) and rows + size <= TOGETHER_ROWS):
            yield _as_one(held)
            held, rows = [], 0
        held.append(run)
        rows += size
    if held:
        yield _as_one(held)


def _alike(one: SourceBatch[Any], other: SourceBatch[Any]) -> bool:
    """Columns of the same type may differ in Arrow, such as integers of 32 and 64 bits, and are then converted by themselves."""
    schemas = [each.elements.schema if isinstance(each.elements, pa.RecordBatch) else None for each in (one, other)]
    return schemas[0] == schemas[1] and (one.timestamps is None) == (other.timestamps is None) and not (one.sides or other.sides)


def _as_one(runs: list[Run]) -> Run:
    if len(runs) == 1:
        return runs[0]
    elements = [run.elements for _, run in runs]
    united = pa.concat_batches(elements) if isinstance(elements[0], pa.RecordBatch) else list(chain.from_iterable(elements))
    stamps = [run.timestamps for _, run in runs if run.timestamps is not None]
    return [part for parts, _ in runs for part in parts], SourceBatch(united, np.concatenate(stamps) if stamps else None)


def read_frame(task: SourceTask, operator: Operator, batches: Iterable[pa.RecordBatch]) -> None:
    """Process the rows of one partition of a Spark DataFrame. The partition number is the piece."""
    assert isinstance(operator.spec, DataFrameSpec)
    task.clock.switch(operator.uid)
    column = operator.spec.split_column
    for batch in batches:
        if column is None:
            task.feed(operator, [Piece(operator.id, "0", task.subtask)], [batch.num_rows], SourceBatch(batch))
            continue
        splits = batch.column(column).dictionary_encode()
        codes = splits.indices.to_numpy(zero_copy_only=False)
        for code, value in enumerate(splits.dictionary.to_pylist()):
            rows = pa.array(np.flatnonzero(codes == code))
            task.feed(operator, [Piece(operator.id, str(value), task.subtask)], [len(rows)], SourceBatch(batch.take(rows)))
