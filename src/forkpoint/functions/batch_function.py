"""The column-wise tier: a function that sees all of an epoch's elements at once, as an Arrow table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forkpoint.functions.base import Function
from forkpoint.functions.descriptors import StateDescriptor

Longs = npt.NDArray[np.int64]


class BatchState(ABC):
    """One state of all keys of an epoch at once: an entry a key, in the order of ``BatchContext.keys``.

    For a ValueState of a record the entries are a RecordBatch with a column a field; for another value, and for reducing
    and aggregating state (whose entry is the accumulator), an Array. ListState and MapState are lists of lists and dicts.
    """

    @property
    @abstractmethod
    def exists(self) -> npt.NDArray[np.bool_]:
        """Which keys have something in the state; shape (keys,)."""

    @abstractmethod
    def read(self) -> Any:
        """All entries; null (None for lists, an empty list or dict) where a key has none."""

    @abstractmethod
    def write(self, entries: Any, where: npt.NDArray[np.bool_] | None = None) -> None:
        """Replace the entries, one a key: of all keys, or of those where ``where`` is true (the others' are ignored).

        ``entries``: what ``read`` returns; for a record also a Table, or a dict or list of columns (Arrow or numpy).
        TypeNotSupported where they are not of the state's type.
        """

    @abstractmethod
    def clear(self, where: npt.NDArray[np.bool_] | None = None) -> None:
        """Empty the state of all keys, or of those where ``where`` is true."""


class BatchContext(ABC):
    """What ``process_batch`` can ask of the epoch at hand. Rows are those of its table, keys in their order in it."""

    @property
    @abstractmethod
    def keys(self) -> pa.Array:
        """The keys, each once, as one array of the key's type (a struct for a key of several fields)."""

    @property
    @abstractmethod
    def key_index(self) -> Longs:
        """For each row the index of its key in ``keys``; shape (rows,)."""

    @property
    @abstractmethod
    def offsets(self) -> Longs:
        """The rows of key i are ``offsets[i]`` to ``offsets[i + 1]``; shape (keys + 1,)."""

    @property
    @abstractmethod
    def timestamps(self) -> Longs | None:
        """Each row's timestamp, int ms; None where the stream has no timestamps."""

    @property
    @abstractmethod
    def watermarks(self) -> Longs:
        """The watermark that each row sees, int ms; shape (rows,)."""

    @property
    @abstractmethod
    def watermark(self) -> int:
        """The watermark behind the epoch, int ms."""

    @property
    @abstractmethod
    def processing_time(self) -> int:
        """The wall clock, int ms, read once an epoch."""

    @abstractmethod
    def get_state(self, descriptor: StateDescriptor) -> BatchState:
        """The entries of a state that is declared on the function's class."""

    @abstractmethod
    def collect(self, table: pa.Table | pa.RecordBatch, rows: Longs) -> None:
        """Emit rows; the i-th has the place and the timestamp of the row ``rows[i]`` of the epoch's table."""


class KeyedBatchFunction(Function):
    """All of an epoch's elements of a subtask at once, with the states of all their keys.

    States are descriptors on the class, and are read and written through ``ctx.get_state(self.descriptor)``; they are the
    same in saved state as those of a KeyedProcessFunction. What is computed must not depend on how many elements an epoch
    has: the states carry on from one to the next.
    """

    @abstractmethod
    def process_batch(self, table: pa.Table, ctx: BatchContext) -> pa.Table | pa.RecordBatch | None:
        """The results: one row for each of the table's rows, or one for each key (then it has the place and timestamp of
        the key's last row). For anything else, call ``ctx.collect``. None for nothing.

        ``table``: a column a field, sorted by key, and within a key in the order of the stream.
        """
