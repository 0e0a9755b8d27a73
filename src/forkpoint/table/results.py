"""The results of statements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from forkpoint.api.results import JobClient
from forkpoint.api.streams.streams import DataStream
from forkpoint.relational.changes import WEIGHT
from forkpoint.relational.types import Schema
from forkpoint.table.answers import Answer, tableau
from forkpoint.types import Row, RowKind


class TableResult:
    """What ``execute_sql`` returns: the changes of a query's result, the rows of a statement, a started job, or nothing."""

    def __init__(
        self,
        schema: Schema = (),
        stream: DataStream[Any] | None = None,
        client: JobClient | None = None,
        answer: Answer | None = None,
    ) -> None:
        self._schema, self._stream, self._client, self._answer = schema, stream, client, answer

    def get_job_client(self) -> JobClient | None:
        """The job of an INSERT; None for other statements."""
        return self._client

    def wait(self, timeout_ms: int | None = None) -> None:
        """Wait until the job of an INSERT has ended. Raises its error."""
        if self._client is not None:
            self._client.get_job_execution_result().result(None if timeout_ms is None else timeout_ms / 1000)

    def collect(self) -> Iterator[Row]:
        """The rows: of a query, which runs, the changes of its result. Each row has a kind."""
        if self._answer is not None:
            yield from (Row.of(self._answer.columns, row, RowKind.INSERT) for row in self._answer.rows)
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
        """Print the rows as a table: of a query, which runs, the changes of its result as they come."""
        if self._answer is not None:
            lines = tableau(self._answer.columns, self._answer.rows)
            print("\n".join([str(self._answer.rows[0][0])] if self._answer.is_text else lines))
            return
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
