"""Runs a file of SQL as a program: all its INSERTs are one job."""

from __future__ import annotations

import os

from forkpoint.api.environment import StreamExecutionEnvironment
from forkpoint.sql.errors import SqlError, Text
from forkpoint.sql.statements import Explain, Query, parse
from forkpoint.table.environment import execute
from forkpoint.table.explanation import explained
from forkpoint.table.session import Session


def run_script(content: bytes, path: str) -> None:
    """Execute the statements of a file, then run its job until its input ends. The job's name is that of the file by default.

    SqlError for a statement that is not valid, before anything runs.
    """
    try:
        source = Text(content.decode("utf-8-sig"), os.path.basename(path))
    except UnicodeDecodeError as error:
        raise SqlError(f"{path} is not UTF-8 ({error}); save it as UTF-8") from None
    session = Session(StreamExecutionEnvironment.get_execution_environment())
    session.name = os.path.splitext(os.path.basename(path))[0]
    for statement in parse(source):
        match statement:
            case Query():
                raise source.error(statement.start, "a file runs as a job, so a query needs a target: INSERT INTO table SELECT …")
            case Explain(query=query):
                print(explained(session.plan(query)))
            case _:
                execute(session, statement, source)
    if session.inserted:
        session.env.execute(session.name)
