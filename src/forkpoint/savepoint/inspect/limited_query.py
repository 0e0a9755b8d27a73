"""Runs a query in a subprocess, and kills the subprocess if it exceeds the limits.

DuckDB's own limits are not enough: a single value that a function creates may exceed the memory limit, and its creation cannot
be interrupted. This module is also the program of the subprocess: it reads a request from stdin, and answers on stdout.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import duckdb
import msgspec
import pyarrow as pa

from forkpoint.decoders import json_decoder
from forkpoint.errors import EditRefused
from forkpoint.savepoint.inspect import sandbox
from forkpoint.savepoint.inspect.query_limits import QueryLimits

View = tuple[str, str, list[str]]
"""Schema, name and Parquet files."""

_OWN_BYTES = 1 << 30  # for Python and the libraries
_NICE = 10  # jobs and the server have priority


class _Request(msgspec.Struct):
    """``result``: the file for the result, in Arrow's IPC format."""

    sql: str
    views: list[View]
    limits: QueryLimits
    result: str


class _Answer(msgspec.Struct):
    truncated: bool = False
    error: str | None = None


def run_within(limits: QueryLimits, sql: str, views: Sequence[View], scratch: Path) -> tuple[pa.Table, bool]:
    """The result of a SELECT, truncated at the limits, and whether it was truncated. Raises EditRefused if the query is
    invalid, or needs more time or memory."""
    result = scratch / "result.arrow"
    request = msgspec.json.encode(_Request(sql, list(views), limits, str(result)))
    command = [sys.executable, "-P", "-m", __spec__.name]
    try:
        ended = subprocess.run(command, input=request, capture_output=True, timeout=limits.seconds)
    except subprocess.TimeoutExpired:
        raise EditRefused(_too_much(f"took longer than {limits.seconds:g} s")) from None
    if ended.returncode:
        if b"memory" in ended.stderr.lower() or b"bad_alloc" in ended.stderr or ended.returncode < 0:
            raise EditRefused(_too_much(f"needs more memory than {limits.memory_bytes >> 20} MiB"))
        raise EditRefused(f"the query failed: {ended.stderr.decode(errors='replace').strip()[-1000:]}")
    answer = json_decoder(_Answer)(ended.stdout)
    if answer.error is not None:
        raise EditRefused(answer.error)
    with pa.OSFile(str(result)) as file, pa.ipc.open_stream(file) as reader:
        return reader.read_all(), answer.truncated


def _too_much(what: str) -> str:
    return f"the query {what}, and was stopped; ask for less, or run it with `forkpoint state query`, which has no limits"


def _main() -> None:
    request = json_decoder(_Request)(sys.stdin.buffer.read())
    os.nice(_NICE)
    signal.alarm(int(request.limits.seconds) + 1)  # in case the parent process has died
    limit = request.limits.memory_bytes + _OWN_BYTES
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    with sandbox.connected(request.limits) as (connection, _):
        try:
            answer = _Answer(_run(connection, request))
        except duckdb.OutOfMemoryException:
            raise MemoryError from None
        except duckdb.Error as error:
            answer = _Answer(error=f"the query is invalid: {error}")
    sys.stdout.buffer.write(msgspec.json.encode(answer))


def _run(connection: duckdb.DuckDBPyConnection, request: _Request) -> bool:
    """Write the first rows of the result; returns whether there are more."""
    sandbox.lock(connection, [file for *_, files in request.views for file in files])
    for schema, name, files in request.views:
        sandbox.create_view(connection, schema, name, files)
    left, room = request.limits.rows, request.limits.result_bytes
    reader = connection.sql(request.sql).limit(left + 1).to_arrow_reader()
    with pa.OSFile(request.result, "wb") as file, pa.ipc.new_stream(file, reader.schema) as writer:
        for batch in reader:
            fitting = batch[:left]
            while fitting.nbytes > room and len(fitting):
                fitting = fitting[: len(fitting) // 2]
            writer.write(fitting)
            left, room = left - len(fitting), room - fitting.nbytes
            if len(fitting) < len(batch):
                return True
    return False


if __name__ == "__main__":
    _main()
