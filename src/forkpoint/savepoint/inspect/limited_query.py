"""A query in a process of its own, which is ended when it uses too much.

DuckDB's limits do not hold for all: one value that a function makes may be larger than the memory limit, and its making cannot be
interrupted.
This module is also that process's program: it reads a request from stdin, and answers on stdout.
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

from forkpoint.decoding import json_decoder
from forkpoint.errors import EditRefused
from forkpoint.savepoint.inspect import sandbox
from forkpoint.savepoint.inspect.query_limits import QueryLimits

View = tuple[str, str, list[str]]
"""Schema, name and Parquet files."""

_OWN_BYTES = 1 << 30  # what Python and the libraries need
_NICE = 10  # jobs, and those who answer callers, go first


class _Request(msgspec.Struct):
    """``result``: the file to write the result to, in Arrow's IPC format."""

    sql: str
    views: list[View]
    limits: QueryLimits
    result: str


class _Answer(msgspec.Struct):
    truncated: bool = False
    error: str | None = None


def run_within(limits: QueryLimits, sql: str, views: Sequence[View], scratch: Path) -> tuple[pa.Table, bool]:
    """The result of a SELECT, as far as the limits allow, and whether there is more. Raises EditRefused if it is invalid, or
    needs more time or memory."""
    result = scratch / "result.arrow"
    request = msgspec.json.encode(_Request(sql, list(views), limits, str(result)))
    command = [sys.executable, "-P", "-m", __spec__.name]
    ended = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        said, complained = ended.communicate(request, timeout=limits.seconds)
    except subprocess.TimeoutExpired:
        raise EditRefused(_too_much(f"took longer than {limits.seconds:g} s")) from None
    finally:
        ended.kill()
        ended.wait()
    if ended.returncode:
        if b"memory" in complained.lower() or b"bad_alloc" in complained or ended.returncode < 0:
            raise EditRefused(_too_much(f"needs more memory than {limits.memory_bytes >> 20} MiB"))
        raise EditRefused(f"the query failed: {complained.decode(errors='replace').strip()[-1000:]}")
    answer = json_decoder(_Answer)(said)
    if answer.error is not None:
        raise EditRefused(answer.error)
    with pa.OSFile(str(result)) as file, pa.ipc.open_stream(file) as reader:
        return reader.read_all(), answer.truncated


def _too_much(what: str) -> str:
    return f"the query {what}, and was ended; ask for less, or run it with `forkpoint sql`, which has no limits"


def _main() -> None:
    request = json_decoder(_Request)(sys.stdin.buffer.read())
    os.nice(_NICE)
    signal.alarm(int(request.limits.seconds) + 1)  # should whoever asked be gone
    most = request.limits.memory_bytes + _OWN_BYTES
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    with sandbox.connected(request.limits) as (connection, _):
        try:
            answer = _Answer(_run(connection, request))
        except duckdb.OutOfMemoryException:
            raise MemoryError from None
        except duckdb.Error as error:
            answer = _Answer(error=f"the query is invalid: {error}")
    sys.stdout.buffer.write(msgspec.json.encode(answer))


def _run(connection: duckdb.DuckDBPyConnection, request: _Request) -> bool:
    """Write the first rows of the result; whether there are more."""
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
