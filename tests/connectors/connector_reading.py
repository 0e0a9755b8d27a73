"""Shared by the tests of sources: what planned ranges hold, as tasks would read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forkpoint.contract.source import Source, SplitRange
from forkpoint.testing.source_contract import batches, elements, json_round_trip
from forkpoint.types import TypeInformation


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


__all__ = ["Elements", "batches", "elements", "json_round_trip", "read_all", "side_elements"]


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
