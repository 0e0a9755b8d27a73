"""Shared by the tests of sources: what planned ranges hold, as tasks would read them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import cloudpickle
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forkpoint.connectors.base import ReaderContext, Source, SourceBatch, SplitRange
from forkpoint.types import TypeInformation


def json_round_trip(value: Any) -> Any:
    return json.loads(json.dumps(value))


def batches(source: Source, planned: SplitRange) -> list[SourceBatch]:
    """What a range holds, read by a task's copy of the source from a range that came by JSON."""
    shipped: Source = cloudpickle.loads(cloudpickle.dumps(source))
    sent = SplitRange(
        planned.split, planned.piece, json_round_trip(planned.start), json_round_trip(planned.end), planned.rows,
        json_round_trip(planned.info),
    )  # fmt: skip
    reader = shipped.create_reader()
    reader.open(ReaderContext("uid", 0))
    try:
        return [run if isinstance(run, SourceBatch) else SourceBatch(run) for run in reader.read(sent)]
    finally:
        reader.close()


def elements(source: Source, planned: SplitRange) -> list[Any]:
    """A range's elements."""
    out: list[Any] = []
    for run in batches(source, planned):
        if isinstance(run.elements, pa.RecordBatch):
            type = source.output_type()
            assert type is not None
            assert run.elements.schema.names == type.column_names
            out += type.from_columns(run.elements.columns)
        else:
            out += run.elements
    return out


def side_elements(source: Source, ranges: list[SplitRange]) -> list[Any]:
    """What ranges hold for side outputs."""
    sides = [side for each in ranges for batch in batches(source, each) for side in batch.sides]
    return [value for side in sides for value in side.elements]


def read_all(source: Source, ranges: list[SplitRange]) -> dict[str, list[Any]]:
    """Elements by split, in order of pieces; pieces are read last first, as tasks may come in any order."""
    by_split: dict[str, list[tuple[int, list[Any]]]] = {}
    for planned in reversed(ranges):
        by_split.setdefault(planned.split, []).append((planned.piece, elements(source, planned)))
    out = {}
    for split, pieces in by_split.items():
        assert sorted(p for p, _ in pieces) == list(range(len(pieces)))
        out[split] = [v for _, values in sorted(pieces, key=lambda p: p[0]) for v in values]
    return out


@dataclass
class Elements:
    """A sink's batch: elements, or columns from which elements are made."""

    given: list[Any] | None = None
    table: pa.RecordBatch | None = None
    type: TypeInformation | None = None
    timestamps: npt.NDArray[np.int64] | None = None
    decoded: bool = False

    @property
    def values(self) -> list[Any]:
        if self.given is None:
            assert self.table is not None
            assert self.type is not None
            self.decoded = True
            self.given = self.type.from_columns(self.table.columns)
        return self.given


def read_planned(source: Source) -> list[Any]:
    """All elements of a bounded source of one split, in order."""
    enumerator, out = source.create_enumerator(None), []
    while planned := enumerator.plan(1000):
        out += [element for each in planned for element in elements(source, each)]
    return out
