"""The results of statements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from forkpoint.api.results import JobClient
from forkpoint.api.streams.streams import DataStream
from forkpoint.relational.changes import WEIGHT
from forkpoint.relational.types import Schema
from forkpoint.types import Row, RowKind


class TableResult:
    """What ``execute_sql`` returns: the changes of a query's result, a started job, or nothing."""

    def __init__(self, schema: Schema = (), stream: DataStream[Any] | None = None, client: JobClient | None = None) -> None:
        self._schema, self._stream, self._client = schema, stream, client

    def get_job_client(self) -> JobClient | None:
        """The job of an INSERT; None for other statements."""
        return self._client

    def wait(self, timeout_ms: int | None = None) -> None:
        """Wait until the job of an INSERT has ended. Raises its error."""
        if self._client is not None:
            self._client.get_job_execution_result().result(None if timeout_ms is None else timeout_ms / 1000)

    def collect(self) -> Iterator[Row]:
        """Run the query, and yield the changes of its result: each row has a kind."""
        if self._stream is None:
            return
        names = tuple(field.name for field in self._schema)
        of = self._stream.get_type()
        weighted = of is not None and WEIGHT in of.column_names
        with self._stream.execute_and_collect() as elements:
            for element in elements:
                values = list(element)
                weight = values.pop() if weighted else 1
                yield Row.of(names, values, RowKind.INSERT if weight > 0 else RowKind.DELETE)

    def print(self) -> None:
        """Run the query, and print the changes of its result as a table, as they come."""
        if self._stream is None:
            print("OK")
            return
        names = [field.name for field in self._schema]
        print(" | ".join(["op", *names]))
        count = 0
        for row in self.collect():
            shown = ["<NULL>" if value is None else str(value) for value in row]
            print(" | ".join([str(row.get_row_kind()), *shown]), flush=True)
            count += 1
        print(f"{count} row{'' if count == 1 else 's'} in set")
