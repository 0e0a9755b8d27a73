"""Writes data files of an Iceberg table and describes them in a sink's committables."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import pyarrow as pa

from forkpoint.contract.source import JSON
from forkpoint_lakehouse.format import DataFiles
from forkpoint_lakehouse.iceberg_errors import raising_errors
from forkpoint_lakehouse.iceberg_partitions import divide_by_spec

_CONCURRENCY = 8  # requests
_COUNTS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
_BOUNDS = ("lower_bounds", "upper_bounds")


class IcebergFiles(DataFiles):
    """Writes data files of a loaded table with its current columns and partitions."""

    def __init__(self, table: Any, name: str) -> None:
        self._table = table
        self._name = name
        self._schema = columns_of(table.metadata)

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def plan(self, rows: pa.Table, name: str) -> Sequence[tuple[str, Any]]:
        from pyiceberg.table.locations import load_location_provider

        locations = load_location_provider(self._table.location(), self._table.properties)
        tasks = write_tasks(self._table.metadata, rows, name)
        return [
            (locations.new_data_location(task.generate_data_file_filename("parquet"), task.partition_key), task) for task in tasks
        ]

    def write(self, path: str, part: Any) -> dict[str, JSON]:
        from pyiceberg.io.pyarrow import write_file

        with raising_errors(self._name):
            (written,) = write_file(self._table.io, self._table.metadata, iter([part]))
        assert written.file_path == path
        metadata = self._table.metadata
        return {**describe(written, metadata.default_spec_id), "table": str(metadata.table_uuid)}

    def remove(self, paths: Iterable[str]) -> None:
        remove_files(self._table.io, paths)


def columns_of(metadata: Any) -> pa.Schema:
    """A table's Arrow columns."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    schema: pa.Schema = schema_to_pyarrow(metadata.schema(), include_field_ids=False)
    return schema


def remove_files(io: Any, paths: Iterable[str]) -> None:
    """Remove data files, if they exist."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            io.delete(path)


def missing_files(io: Any, paths: Sequence[str]) -> list[str]:
    """The files that do not exist."""
    with ThreadPoolExecutor(_CONCURRENCY) as pool:
        there = pool.map(lambda path: io.new_input(path).exists(), paths)
        return [path for path, exists in zip(paths, there, strict=True) if not exists]


def write_tasks(metadata: Any, rows: pa.Table, name: str) -> list[Any]:
    """pyiceberg's write tasks: one data file per partition, with ``name`` in the file name."""
    from pyiceberg.io.pyarrow import pyarrow_to_schema
    from pyiceberg.table import WriteTask

    class Named(WriteTask):  # type: ignore[misc]
        def generate_data_file_filename(self, extension: str) -> str:
            return f"{name}-{self.task_id}.{extension}"

    schema = pyarrow_to_schema(rows.schema, name_mapping=metadata.schema().name_mapping)
    unused: Any = None  # the UUID in pyiceberg's file names
    return [
        Named(unused, number, schema, part.to_batches(), partition_key=key)
        for number, (key, part) in enumerate(divide_by_spec(metadata, rows))
    ]


def describe(file: Any, spec: int) -> dict[str, JSON]:
    """A data file as JSON. ``spec``: the id of the table's partition spec."""
    return {
        "path": file.file_path,
        "size": file.file_size_in_bytes,
        "rows": file.record_count,
        "spec": spec,
        "partition": [_to_json(file.partition[at]) for at in range(len(file.partition))],
        "splits": file.split_offsets,
        **{name: {str(k): v for k, v in (getattr(file, name) or {}).items()} for name in _COUNTS},
        **{
            name: {str(k): base64.b64encode(v).decode("ascii") for k, v in (getattr(file, name) or {}).items()}
            for name in _BOUNDS
        },
    }


def restore(description: JSON) -> Any:
    """The data file of a description by ``describe``."""
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=description["path"],
        file_format=FileFormat.PARQUET,
        partition=Record(*map(_from_json, description["partition"])),
        record_count=description["rows"],
        file_size_in_bytes=description["size"],
        split_offsets=description["splits"],
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
        **{name: {int(k): v for k, v in description[name].items()} for name in _COUNTS},
        **{name: {int(k): base64.b64decode(v) for k, v in description[name].items()} for name in _BOUNDS},
    )
    file.spec_id = description["spec"]
    return file


def _to_json(value: Any) -> JSON:
    if isinstance(value, Decimal):
        return {"decimal": str(value)}
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode("ascii")}
    return value


def _from_json(value: JSON) -> Any:
    match value:
        case {"decimal": text}:
            return Decimal(text)
        case {"bytes": text}:
            return base64.b64decode(text)
        case _:
            return value
