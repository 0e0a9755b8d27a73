"""Commit rows: a task's report to the driver. They travel like chunks, over an edge of their own."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from typing import Any

from forkpoint.errors import ForkpointError
from forkpoint.runtime.exchange.control import CommitRow, Failure, encode_commit
from forkpoint.runtime.exchange.wire import COMMIT, ChunkRow


def new_attempt() -> str:
    """A unique id for an attempt."""
    return uuid.uuid4().hex[:16]


def commit_row(target: int, stage: int, subtask: int, attempt: str, **parts: Any) -> ChunkRow:
    """A task's report as a row that reaches the driver by way of subtask ``target``."""
    return target, COMMIT, 0, encode_commit(CommitRow(stage, subtask, attempt, **parts))


def failure_row(target: int, stage: int, subtask: int, attempt: str, error: ForkpointError) -> ChunkRow:
    return commit_row(target, stage, subtask, attempt, failure=Failure(type(error).__name__, str(error)))


def commits_in(rows: Iterable[ChunkRow]) -> Iterator[ChunkRow]:
    """The commit rows among others."""
    return (row for row in rows if row[1] == COMMIT)
