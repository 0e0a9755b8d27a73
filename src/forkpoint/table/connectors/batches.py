"""Columns as batches for formats and sinks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forkpoint.types import TypeInformation


@dataclass
class Columns:
    """Columns as a batch for a format or sink."""

    table: pa.RecordBatch
    type: TypeInformation[Any]
    timestamps: npt.NDArray[np.int64] | None = None

    @cached_property
    def values(self) -> list[Any]:
        return self.type.from_columns(self.table.columns)
