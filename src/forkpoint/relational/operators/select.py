"""Projection and filter, and the rows that a table with a primary key keeps."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import pyarrow as pa

from forkpoint.graph.specs import Fields
from forkpoint.relational.changes import WEIGHT, added_by_key, last_by_key, left_by_key, weights_of, with_weights
from forkpoint.relational.evaluation import evaluate_all, true_rows
from forkpoint.relational.expressions import Column, Expression, Item, Literal
from forkpoint.relational.expressions import columns_of as fields_of
from forkpoint.relational.functions import changing
from forkpoint.relational.functions.user import taken
from forkpoint.runtime.columnar.objects import columns_of
from forkpoint.runtime.exchange.batch import Batch, Coordinates, DerivedBatch, empty_batch
from forkpoint.runtime.operators.base import Epoch, Outputs, TaskInfo
from forkpoint.runtime.operators.instances import ManagedState, RunnableSpec
from forkpoint.types import TypeInformation
from forkpoint.types.kinds.records import RecordType


@dataclass(frozen=True)
class SelectSpec(RunnableSpec):
    """Projection and filter. Weights pass unchanged. ``weighted``: rows without a weight get one, 1."""

    kind = "select"

    condition: Expression | None
    items: tuple[Item, ...]
    weighted: bool = False

    def instance(self, info: TaskInfo, state: ManagedState) -> SelectOperator:
        return SelectOperator(info, self)

    def reads(self, output: Fields) -> Fields:
        read = (self.condition, *(item.of for item in self.items))
        return frozenset(column.name for each in read if each is not None for column in fields_of(each)) | {WEIGHT}

    def projected(self, output: RecordType) -> Self:
        return replace(self, items=tuple(item for item in self.items if item.name in output.names))


@dataclass(frozen=True)
class ChangingSelectSpec(SelectSpec):
    """A selection that calls functions of the clock, or random ones. ``salt``: of the run's random values."""

    salt: int = 0

    def instance(self, info: TaskInfo, state: ManagedState) -> SelectOperator:
        return ChangingSelectOperator(info, self)


def select_spec(condition: Expression | None, items: tuple[Item, ...], *, weighted: bool) -> SelectSpec:
    if not any(True for each in (condition, *(item.of for item in items)) for _ in changing.calls_in(each)):
        return SelectSpec(condition, items, weighted)
    return ChangingSelectSpec(condition, items, weighted, secrets.randbits(64))


class ColumnsOperator(ABC):
    """Computes the columns of an epoch from those of its input, without state."""

    def __init__(self, info: TaskInfo) -> None:
        assert info.operator.output_type is not None
        self._in, self._out = info.operator.inputs[0].type, info.operator.output_type

    @abstractmethod
    def computed(self, table: pa.RecordBatch) -> tuple[np.ndarray | None, pa.RecordBatch]:
        """The columns of the result, and the row of the input that each of its rows is of; None: row by row."""

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        batch = inputs[0]
        if not batch.size:
            return Outputs(empty_batch(self._out))
        return Outputs(derived(batch, *self.computed(columns_of(batch, self._in)), self._out))

    def close(self) -> None:
        return None


class SelectOperator(ColumnsOperator):
    def __init__(self, info: TaskInfo, spec: SelectSpec) -> None:
        super().__init__(info)
        self._spec = spec

    def computed(self, table: pa.RecordBatch) -> tuple[np.ndarray | None, pa.RecordBatch]:
        return self._selected(self._spec.condition, self._spec.items, table)

    def _selected(
        self, condition: Expression | None, items: tuple[Item, ...], table: pa.RecordBatch
    ) -> tuple[np.ndarray | None, pa.RecordBatch]:
        rows = true_rows(condition, table)
        if rows is not None:
            table = taken(table, pa.array(rows))
        names = [item.name for item in items]
        columns = pa.RecordBatch.from_arrays(evaluate_all(items, table), names=names)
        weights = weights_of(table)
        if weights is None and self._spec.weighted:
            weights = np.ones(table.num_rows, np.int64)
        return rows, with_weights(columns, weights)


class ChangingSelectOperator(SelectOperator):
    def __init__(self, info: TaskInfo, spec: ChangingSelectSpec) -> None:
        super().__init__(info, spec)
        self._subtask, self._salt = info.subtask, spec.salt
        self._occasion: changing.Occasion | None = None
        expressions = (spec.condition, *(item.of for item in spec.items))
        self._calls = {str(call): call for each in expressions for call in changing.calls_in(each)}

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        batch = inputs[0].in_order()
        numbers = rows = np.arange(batch.size)
        if epoch.place:  # one of several calls
            numbers = batch.coordinates(rows)[2]
        place = epoch.place or f"subtask {self._subtask}"
        self._occasion = changing.Occasion(epoch.id, epoch.processing_time_ms, place, numbers, self._salt)
        return super().run([batch], epoch)

    def computed(self, table: pa.RecordBatch) -> tuple[np.ndarray | None, pa.RecordBatch]:
        values: dict[str, Literal | Column] = {}
        for text, call in self._calls.items():
            assert self._occasion is not None
            found = self._occasion.value(call)
            if isinstance(found, Literal):
                values[text] = found
            else:
                values[text] = Column(f"$value {text}", call.type)
                table = table.append_column(f"$value {text}", found)
        condition = self._spec.condition
        items = tuple(Item(item.name, changing.replaced(item.of, values)) for item in self._spec.items)
        return self._selected(None if condition is None else changing.replaced(condition, values), items, table)


def derived(batch: Batch, rows: np.ndarray | None, columns: pa.RecordBatch, type: TypeInformation) -> Batch:
    """Columns in place of the rows of a batch, at their coordinates; ``rows``: None for all of them."""
    found = pa.RecordBatch.from_arrays(columns.columns, schema=type.arrow_schema)
    picked = np.arange(batch.size) if rows is None else rows
    return DerivedBatch(found.num_rows, lambda: batch.coordinates(picked), table=found, type=type)


@dataclass(frozen=True)
class UpsertSpec(RunnableSpec):
    """The changes of an epoch as one row for each primary key: its new row, or the removal of its row. ``of_subtasks``: each
    change is already what a subtask has of its key, and they are in no order."""

    kind = "upsert"

    key: tuple[str, ...]
    of_subtasks: bool = False

    def instance(self, info: TaskInfo, state: ManagedState) -> ByKeyOperator:
        return ByKeyOperator(info, self.key, added_by_key if self.of_subtasks else last_by_key)


@dataclass(frozen=True)
class OrderedSpec(RunnableSpec):
    """The changes of an epoch that are left on balance, of each key the removals first. Those of subtasks are in no order."""

    kind = "ordered"

    key: tuple[str, ...]

    def instance(self, info: TaskInfo, state: ManagedState) -> ByKeyOperator:
        return ByKeyOperator(info, self.key, left_by_key)


class ByKeyOperator:
    """Some of the changes of an epoch, in the order that ``chosen`` gives their indices."""

    def __init__(
        self, info: TaskInfo, key: tuple[str, ...], chosen: Callable[[pa.RecordBatch, Sequence[str]], np.ndarray]
    ) -> None:
        self._type, self._key, self._chosen = info.operator.output_type, key, chosen

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        batch = inputs[0].in_order()
        if not batch.size:
            return Outputs(empty_batch(self._type))
        assert self._type is not None
        table = columns_of(batch, self._type)
        rows = self._chosen(table, self._key)

        def coordinates() -> Coordinates:
            positions, splits, sequence, _ = batch.coordinates(np.sort(rows))
            return positions, splits, sequence, batch.coordinates(rows)[3]

        found = pa.RecordBatch.from_arrays(table.take(pa.array(rows)).columns, schema=self._type.arrow_schema)
        return Outputs(DerivedBatch(len(rows), coordinates, table=found, type=self._type))

    def close(self) -> None:
        return None
