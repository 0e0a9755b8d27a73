"""Runs a file of SQL as a program: all its INSERTs are one job."""

from __future__ import annotations

import os

from forkpoint.api.environment import StreamExecutionEnvironment
from forkpoint.sql.errors import SqlError, Text
from forkpoint.sql.parser import parse
from forkpoint.sql.statements import Query
from forkpoint.table.api.results import TableResult
from forkpoint.table.session import Session
from forkpoint.table.statements import execute


def run_script(content: bytes, path: str) -> None:
    """Execute the statements of a file, then run its job until its input ends. The job's name is that of the file by default.

    SqlError for a statement that is not valid, before anything runs.
    """
    source = Text(script_text(content, path), os.path.basename(path))
    session = Session(StreamExecutionEnvironment.get_execution_environment())
    session.name = os.path.splitext(os.path.basename(path))[0]
    for statement in parse(source):
        if isinstance(statement, Query):
            raise source.error(statement.start, "a file runs as a job, so a query needs a target: INSERT INTO table SELECT …")
        answer = execute(session, statement, source)
        if answer is not None:
            TableResult(answer=answer).print()
    if session.inserted:
        session.env.execute(session.name)


def script_text(content: bytes, path: str) -> str:
    """The text of a file. Raises SqlError if it is not UTF-8."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SqlError(f"{path} is not UTF-8 ({error}); save it as UTF-8") from None
