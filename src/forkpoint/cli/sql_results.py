"""Results of SQL statements are printed: as tables, or with `--output json` as an object for each row; INSERTs start a job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from forkpoint.cli.commands.run import request_of, start
from forkpoint.cli.output import JsonOutput, Output, TextOutput
from forkpoint.cli.settings import current
from forkpoint.operations.launch.recorded import name_of_entered
from forkpoint.table.answers import Answer, cell
from forkpoint.table.api.query_results import QueryResult
from forkpoint.table.interactive import Program
from forkpoint.types.readable import plain


def show(result: Answer | QueryResult, output: Output) -> None:
    """Print what a statement answers, or run a query and print its result: the rows, or the changes if its input has no end."""
    if isinstance(result, QueryResult):
        if result.ends:
            _rows(result.columns, result.rows(), output)
        else:
            _changes(result, output)
    elif result.is_text and isinstance(output, TextOutput):
        output.line(str(result.rows[0][0]))
    else:
        _rows(result.columns, result.rows, output)


def start_entered(program: Program, detached: bool, options: Mapping[str, Any]) -> None:
    """Start the job of INSERTs that somebody has entered. ``options``: of a command that starts programs."""
    name = name_of_entered(current().state_root, program.name, program.text)
    with replace(program, name=name).file() as path:
        start(request_of(path, (), options), detached)


def _rows(columns: Sequence[str], rows: Sequence[tuple[Any, ...]], output: Output) -> None:
    if isinstance(output, JsonOutput):
        for row in rows:
            output.row(_json(columns, row))
        return
    assert isinstance(output, TextOutput)
    numbers = [name for name, values in zip(columns, zip(*rows, strict=True), strict=False) if _are_numbers(values)]
    output.table(columns, [[cell(value) for value in row] for row in rows], right=numbers)
    output.line(f"{len(rows)} row{'' if len(rows) == 1 else 's'}")


def _are_numbers(values: Iterable[Any]) -> bool:
    return all(value is None or (isinstance(value, int | float) and not isinstance(value, bool)) for value in values)


def _changes(result: QueryResult, output: Output) -> None:
    if isinstance(output, TextOutput):
        output.line(" | ".join(["op", *result.columns]))
    with closing(result.changes()) as changes:
        for row in changes:
            kind, values = str(row.get_row_kind()), tuple(row)
            if isinstance(output, JsonOutput):
                output.row({"op": kind, "row": _json(result.columns, values)})
            elif isinstance(output, TextOutput):
                output.line(" | ".join([kind, *map(cell, values)]))


def _json(columns: Sequence[str], row: Sequence[Any]) -> dict[str, Any]:
    return {name: plain(value) for name, value in zip(columns, row, strict=True)}
