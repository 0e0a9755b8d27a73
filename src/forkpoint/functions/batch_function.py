"""Column-wise functions, which process all elements of an epoch as an Arrow table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forkpoint.functions.base import Function
from forkpoint.functions.state.descriptors import StateDescriptor

Longs = npt.NDArray[np.int64]


class BatchState(ABC):
    """A state of all keys of an epoch: one entry per key, in the order of ``BatchContext.keys``.

    Entries of ValueState with a record type are a RecordBatch with a column per field. Entries of other ValueState, and of
    reducing and aggregating state (the accumulators), are an Array. Entries of ListState and MapState are a list of lists or
    dicts.
    """

    @property
    @abstractmethod
    def exists(self) -> npt.NDArray[np.bool_]:
        """Which keys have state; shape (keys,)."""

    @abstractmethod
    def read(self) -> Any:
        """All entries; null (None for lists, an empty list or dict) for keys without state."""

    @abstractmethod
    def write(self, entries: Any, where: npt.NDArray[np.bool_] | None = None) -> None:
        """Replace the entries of all keys, or of the keys in the mask ``where`` (shape (keys,)).

        ``entries``: one per key, in the form that ``read`` returns; for records also a Table, or a dict or list of columns
        (Arrow or numpy). TypeNotSupported if they do not fit the state's type.
        """

    @abstractmethod
    def clear(self, where: npt.NDArray[np.bool_] | None = None) -> None:
        """Remove the state of all keys, or of the keys in the mask ``where`` (shape (keys,))."""


class BatchContext(ABC):
    """The context of ``process_batch``. Rows are rows of its table; keys are in table order."""

    @property
    @abstractmethod
    def keys(self) -> pa.Array:
        """The distinct keys, as an array of the key's type (a struct for a key of several fields)."""

    @property
    @abstractmethod
    def key_index(self) -> Longs:
        """The index of each row's key in ``keys``; shape (rows,)."""

    @property
    @abstractmethod
    def offsets(self) -> Longs:
        """The rows of key i are ``offsets[i]`` to ``offsets[i + 1]``; shape (keys + 1,)."""

    @property
    @abstractmethod
    def timestamps(self) -> Longs | None:
        """Each row's timestamp in int ms, shape (rows,); None if the stream has no timestamps."""

    @property
    @abstractmethod
    def watermarks(self) -> Longs:
        """The watermark at each row in int ms; shape (rows,)."""

    @property
    @abstractmethod
    def watermark(self) -> int:
        """The watermark at the end of the epoch, int ms."""

    @property
    @abstractmethod
    def processing_time(self) -> int:
        """The wall clock in int ms, read once per epoch."""

    @abstractmethod
    def get_state(self, descriptor: StateDescriptor) -> BatchState:
        """The entries of a state declared on the function's class."""

    @abstractmethod
    def collect(self, table: pa.Table | pa.RecordBatch, rows: Longs) -> None:
        """Emit rows. The i-th has the order and timestamp of row ``rows[i]`` of the input table."""


class KeyedBatchFunction(Function):
    """Processes all of a subtask's elements of an epoch at once, with the states of all their keys.

    Declare states by descriptors on the class, and access them with ``ctx.get_state(self.descriptor)``. They are saved like
    the states of a KeyedProcessFunction. Results must not depend on the division of the input into epochs.
    """

    @abstractmethod
    def process_batch(self, table: pa.Table, ctx: BatchContext) -> pa.Table | pa.RecordBatch | None:
        """Return one row per row of the table, or one per key with the order and timestamp of the key's last row.

        Use ``ctx.collect`` for other results; None emits nothing. ``table`` has a column per field. It is sorted by key, and
        a key's rows are in stream order.
        """
