"""Stages 1 and later: runs one subtask over an epoch, operator by operator."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from forkpoint.checkpoint.format import checksum
from forkpoint.graph.job import InEdge, Operator
from forkpoint.graph.specs import SinkSpec
from forkpoint.graph.transformations import Broadcast, Forward, KeyBy
from forkpoint.runtime.event_time.watermarks import MAX_MS, MIN_MS, Splits, Watermarks, origin_splits, watermarks_of
from forkpoint.runtime.exchange.batch import Batch, concat, for_each, spread, successive
from forkpoint.runtime.exchange.control import Changes as ChangesPart
from forkpoint.runtime.exchange.control import CommitRow, Snapshot, UserMetric
from forkpoint.runtime.exchange.grouping import hottest_key, route, targets_of
from forkpoint.runtime.exchange.wire import ChunkRow, Inbox, Pieces, encode_chunk, receive
from forkpoint.runtime.operators.base import Epoch, StatefulInstance
from forkpoint.runtime.operators.iteration import FeedbackSpec
from forkpoint.runtime.tasks.subtask_store import SubtaskState
from forkpoint.runtime.tasks.task import Task
from forkpoint.runtime.tasks.worker import Worker, worker_for
from forkpoint.state import (
    OPERATOR_KG,
    Changes,
    Count,
    as_changes,
    change_columns,
    range_for,
    write_change_columns,
    write_changes,
    write_snapshot,
)

Waiting = dict[int, dict[int, list[Batch]]]
"""Input by operator and ordinal."""

_CHUNK_ROWS = 131_072
_SPLIT_SHIFT = 32
_NO_CHANGES = write_changes(Changes([], []))


@dataclass
class StageTask(Task):
    """One attempt of one subtask at one stage of an epoch."""

    def run(self, rows: Iterable[ChunkRow]) -> None:
        worker = worker_for(self.spec)
        graph = self.spec.graph
        state = worker.state(self.subtask)
        catch_up = state.catch_up(self.context)
        operators = graph.stage(self.stage)
        inbox = receive(rows, {e.id: e for o in operators for e in o.inputs if e.crosses})
        self.forwarded = inbox.forwarded
        origins = origin_splits(graph, self.context, inbox.progress)
        watermarks = watermarks_of(graph, self.context, origins)
        waiting: Waiting = {o.id: {} for o in operators}
        self._user: dict[str, list[UserMetric]] = {}
        self._deliver(inbox, operators, origins, waiting)
        commit = self._commit = CommitRow(self.stage, self.subtask, self.attempt, catch_up=catch_up)
        log = Changes([], [])
        timers: list[int | None] = []
        for operator in operators:
            self.clock.switch(operator.uid)
            inputs = self._inputs(operator, waiting.pop(operator.id))
            commit.records_in[operator.uid] = sum(b.size for b in inputs)
            if isinstance(operator.spec, FeedbackSpec):
                commit.in_flight += inputs[0].size
            if isinstance(operator.spec, SinkSpec):
                self.sink(operator).write(inputs[0])
                continue
            instance = worker.instance(operator, self.subtask, self.context, self.attempt)
            outputs = instance.run(inputs, self._epoch(operator, watermarks))
            commit.records_out[operator.uid] = outputs.main.size
            if outputs.mutable:
                commit.mutable.append(operator.uid)
            if outputs.late_records_dropped:
                commit.late_records_dropped[operator.uid] = outputs.late_records_dropped
            if operator.stateful:
                stateful = cast(StatefulInstance, instance)
                changes = stateful.changes()
                log.keys.extend(changes.keys)
                log.values.extend(changes.values)
                commit.states.extend(stateful.states())
                timers.append(stateful.next_processing_timer_ms())
            for tag, batch in ((None, outputs.main), *outputs.sides.items()):
                self._forward(operator, batch, tag, waiting)
            if user := worker.user_metrics(operator.id, self.subtask):
                self._user[operator.uid] = user
        self.clock.switch(None)
        commit.next_processing_timer_ms = min((t for t in timers if t is not None), default=None)
        commit.changes = self._write_changes(worker, state, log)
        if self.stage == 1:
            commit.state_size = state.store.size()
            commit.counted = state.counted(self.context.committed)
            if self.subtask in self.context.snapshot_subtasks:
                commit.snapshot = self._write_snapshot(worker, state)

    def _epoch(self, operator: Operator, watermarks: Watermarks) -> Epoch:
        window = watermarks.windows[operator.id]
        ended = self.spec.graph.batch and window.end == MAX_MS
        context, uid = self.context, operator.uid
        return Epoch(
            context.epoch,
            window,
            context.processing_time_ms,
            fires_all=ended,
            one_by_one=uid in context.one_by_one,
            trusted=uid in context.trusted,
            first=watermarks.first.get(operator.id) if self.spec.periodic_watermarks else None,
            restored=context.committed == self.spec.restored_from,
        )

    # -- in

    def _deliver(self, inbox: Inbox, operators: tuple[Operator, ...], origins: dict[int, Splits], waiting: Waiting) -> None:
        ranks = {o: rank for rank, o in enumerate(sorted(origins))}
        for operator in operators:
            for edge in operator.inputs:
                self.bytes_in[operator.uid] += inbox.bytes.get(edge.id, 0)
                for pieces, batch in inbox.chunks.pop(edge.id, ()):
                    if pieces:
                        origin = pieces[0].origin
                        self._complete(batch, pieces, origins[origin], ranks[origin])
                    waiting[operator.id].setdefault(edge.ordinal, []).append(batch)

    def _complete(self, batch: Batch, pieces: Pieces, splits: Splits, rank: int) -> None:
        """Complete a piece's running watermark with the split's watermark before it, and set the split numbers."""
        numbers = [(rank << _SPLIT_SHIFT) + splits.order[piece.split] for piece in pieces]
        if isinstance(batch.splits, int):
            piece, batch.splits = pieces[batch.splits], numbers[batch.splits]
            at, least = batch.positions, 2 * splits.pieces[piece.split, piece.piece] + 1
            batch.positions = max(at, least) if isinstance(at, int) else np.maximum(at, least)
        else:
            batch.splits, batch.ordered = np.array(numbers)[batch.splits], False

    def _inputs(self, operator: Operator, batches: dict[int, list[Batch]]) -> list[Batch]:
        inputs = []
        for ordinal in range(max(e.ordinal for e in operator.inputs) + 1):
            type_ = next(e.type for e in operator.inputs if e.ordinal == ordinal)
            batch = concat(successive(batches.get(ordinal, ())), type_)
            batch = batch.in_order() if operator.stateful else batch
            keys = (e.partitioning for e in operator.inputs if e.ordinal == ordinal and isinstance(e.partitioning, KeyBy))
            if (key := next(keys, None)) is not None and (hottest := hottest_key(batch, key)) is not None:
                self.hottest[operator.uid] = max(hottest, self.hottest.get(operator.uid, hottest), key=itemgetter(1))
            if operator.stateful and self.spec.graph.batch:
                broadcast = any(isinstance(e.partitioning, Broadcast) for e in operator.inputs if e.ordinal == ordinal)
                batch = self._timeless(batch, 0 if broadcast else ordinal + 1)  # broadcast elements come first
            inputs.append(batch)
        return inputs

    def _timeless(self, batch: Batch, rank: int) -> Batch:
        """The elements in order, all ahead of event time, which starts after all input in BATCH mode."""
        batch = batch.take(np.arange(batch.size))
        batch.positions, batch.splits = 2 * MIN_MS + 1, (rank << _SPLIT_SHIFT) + self.subtask
        batch.sequence = np.arange(batch.size)
        return batch

    # -- out

    def _forward(self, operator: Operator, batch: Batch, tag: str | None, waiting: Waiting) -> None:
        if not batch.size:
            return
        batch.keys = None  # the keys of the input, if the operator forwards elements like a filter
        consumers = self.spec.graph.consumers_of(operator, tag)
        for (consumer, edge), elements in zip(consumers, for_each(batch, len(consumers)), strict=True):
            if edge.crosses:
                self._send(edge, elements, consumer.uid)
            else:
                waiting[consumer.id].setdefault(edge.ordinal, []).append(elements)

    def _send(self, edge: InEdge, batch: Batch, consumer: str) -> None:
        parallelism = self.spec.parallelism
        if isinstance(edge.partitioning, Broadcast):
            for block in batch.blocks(_CHUNK_ROWS):
                blob = encode_chunk(block)
                for target in range(parallelism):
                    self.send(edge, target, blob)
            return
        targets = targets_of(batch, edge.partitioning, parallelism, self.spec.max_parallelism, consumer)
        if targets is None:
            targets = self._targets_of_splits(edge, batch)
        for target, part in route(batch, targets, parallelism):
            for block in part.blocks(_CHUNK_ROWS):
                self.send(edge, target, encode_chunk(block))
        batch.keys = None

    def _targets_of_splits(self, edge: InEdge, batch: Batch) -> npt.NDArray[Any]:
        if isinstance(edge.partitioning, Forward):
            # The edge skips a stage that other inputs of the consumer pass; each key keeps its order.
            return np.full(batch.size, self.subtask)
        # Outputs of timers have a rank below all splits instead of a split; with a single split they stay with its elements.
        return np.maximum(spread(batch.splits, batch.size), 0) % self.spec.parallelism

    # -- state

    def _write_changes(self, worker: Worker, state: SubtaskState, log: Changes) -> ChangesPart | None:
        if not log.keys:
            state.keep(self.context.epoch, self.stage, self.attempt, log)
            state.offer(self.context.epoch, self.stage, self.attempt, _NO_CHANGES)
            return None
        columns, seconds = change_columns(log), sum(self.clock.seconds.values())
        state.keep(self.context.epoch, self.stage, self.attempt, as_changes(*columns))  # in order, as stores need them
        data, grown = (write_change_columns(columns), state.growth[self.stage].growth(*columns, state.store.get_many, seconds))
        state.offer(self.context.epoch, self.stage, self.attempt, data)
        if len(data) <= self.spec.inline_bytes:
            return ChangesPart(None, data, len(log), len(data), checksum(data), grown)
        path = worker.paths.changelog(self.context.epoch, self.stage, self.subtask, self.attempt)
        worker.storage.put(path, data)
        return ChangesPart(path, None, len(log), len(data), checksum(data), grown)

    def _write_snapshot(self, worker: Worker, state: SubtaskState) -> Snapshot:
        """Write the committed state before this epoch, with which the store has just caught up."""
        count = Count()
        data = write_snapshot(state.store.scan(*range_for(0, OPERATOR_KG + 1)), count)
        path = worker.paths.snapshot(self.context.committed, self.subtask, self.attempt)
        worker.storage.put(path, data)
        self._commit.counted = count.amounts
        return Snapshot(path, self.context.committed, count.entries, len(data), checksum(data))

    # -- end

    def finish(self) -> list[ChunkRow]:
        forwarded = [(self.subtask, *row[1:]) for row in self.forwarded]
        self._commit.committables = self.committables()
        self._commit.measured = self.measured(self._user)
        return [*self.rows, *forwarded, self.report(self._commit)]
