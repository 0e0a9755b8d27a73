"""Divides rows among the partitions of an Iceberg table, by columns and their transforms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True)
class Partition:
    """A partition key for pyiceberg's writers."""

    partition: Any
    spec: Any
    schema: Any

    def to_path(self) -> str:
        return str(self.spec.partition_to_path(self.partition, self.schema))


def divide_by_spec(metadata: Any, rows: pa.Table) -> Iterator[tuple[Partition | None, pa.Table]]:
    """The partitions that have rows, with their rows in order. The partition is None if the table is not partitioned."""
    from pyiceberg.typedef import Record

    spec, schema = metadata.spec(), metadata.schema()
    if spec.is_unpartitioned():
        yield None, rows
        return
    codes, values = [], []
    for field in spec.fields:
        source = schema.find_field(field.source_id)
        column = _column(rows, schema.find_column_name(field.source_id)).dictionary_encode(null_encoding="encode")
        column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        transform = field.transform.transform(source.field_type)
        of = [None if value is None else transform(value) for value in _transform_input(column.dictionary, source.field_type)]
        number = {value: at for at, value in enumerate(dict.fromkeys(of))}
        codes.append(np.array([number[value] for value in of], np.int64)[column.indices.to_numpy(zero_copy_only=False)])
        values.append(list(number))
    names = [str(at) for at in range(len(codes))]
    numbered = pa.table([*map(pa.array, codes), pa.array(np.arange(len(rows)))], names=[*names, "at"])
    groups = numbered.group_by(names, use_threads=False).aggregate([("at", "list")]).to_pylist()
    for group in groups:
        record = Record(*(of[group[name]] for name, of in zip(names, values, strict=True)))
        yield Partition(record, spec, schema), rows.take(pa.array(group["at_list"]))


def _column(rows: pa.Table, name: str) -> pa.ChunkedArray:
    """A column or a nested field; all None if the rows lack it."""
    if name in rows.column_names:
        return rows.column(name)
    first, *path = name.split(".")
    if path and first in rows.column_names:
        return pc.struct_field(rows.column(first), path)
    return pa.chunked_array([pa.nulls(len(rows), pa.int32())])


def _transform_input(values: pa.Array, type: Any) -> list[Any]:
    """Values as input for Iceberg's transforms."""
    of = values.type
    if pa.types.is_timestamp(of) or pa.types.is_time(of):
        return list(values.cast(pa.int64()).to_pylist())
    if pa.types.is_date32(of):
        return list(values.cast(pa.int32()).to_pylist())
    if str(type) == "uuid":
        return [None if v is None else v.bytes if isinstance(v, UUID) else bytes(v) for v in values.to_pylist()]
    return list(values.to_pylist())
