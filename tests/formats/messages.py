"""Helpers of the tests of formats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from forkpoint.connectors.formats.records import RecordConverter, Unreadable
from forkpoint.contract.format import DeserializationSchema, Deserialized
from forkpoint.types import TypeInformation


@dataclass(frozen=True)
class Batch:
    """A run of elements for a sink, as columns or as objects."""

    elements: list[Any]
    type: TypeInformation | None = None
    columns: bool = False
    timestamps: None = None

    @property
    def values(self) -> list[Any]:
        return list(self.elements)

    @property
    def table(self) -> pa.RecordBatch | None:
        if not self.columns or self.type is None:
            return None
        return pa.RecordBatch.from_arrays(self.type.to_columns(self.elements), schema=self.type.arrow_schema)


def messages(*values: bytes | None) -> pa.BinaryArray:
    return pa.array(values, pa.binary())


def read(schema: DeserializationSchema, *values: bytes | None) -> list[Any]:
    """The elements of messages that are all good."""
    found = schema.deserialize_batch(messages(*values))
    assert not found.bad
    return elements(schema, found)


def elements(schema: DeserializationSchema, found: Deserialized) -> list[Any]:
    type = schema.get_produced_type()
    assert type is not None
    assert isinstance(found.elements, pa.RecordBatch)
    assert found.elements.schema == type.arrow_schema
    found.elements.validate(full=True)
    return type.from_columns(found.elements.columns)


def one_by_one(decode: Any, converter: RecordConverter, values: list[bytes | None]) -> list[Any]:
    """For each message its columns, or None if it is bad: what a format must return."""
    out = []
    for value in values:
        try:
            batch, problems = converter.convert([decode(value)])
            out.append(None if problems else batch)
        except Unreadable:
            out.append(None)
    return out


def assert_same(found: Deserialized, expected: list[pa.RecordBatch | None]) -> None:
    """The batch's result is that of its messages one by one, to the bit."""
    good = [index for index, each in enumerate(expected) if each is not None]
    assert [each.index for each in found.bad] == [index for index, each in enumerate(expected) if each is None]
    assert list(range(len(expected)) if found.indices is None else found.indices) == good
    assert isinstance(found.elements, pa.RecordBatch)
    found.elements.validate(full=True)
    assert found.elements.num_rows == len(good)
    for row, index in enumerate(good):
        for ours, theirs in zip(found.elements.slice(row, 1).columns, expected[index].columns, strict=True):
            assert bits(ours) == bits(theirs)


def bits(column: pa.Array) -> Any:
    value = column.to_pylist()
    if pa.types.is_floating(column.type):
        return [None if v is None else np.float64(v).tobytes() for v in value]
    return value
