"""Making commit rows, and reporting failures as such."""

from __future__ import annotations

import uuid
from typing import Any

from forkpoint.errors import ForkpointError
from forkpoint.runtime.exchange.control import CommitRow, Failure, encode_commit


def new_attempt() -> str:
    """A name that no other attempt at anything has."""
    return uuid.uuid4().hex[:16]


def to_commit_blob(stage: int, subtask: int, attempt: str, **parts: Any) -> bytes:
    return encode_commit(CommitRow(stage, subtask, attempt, **parts))


def failure_blob(stage: int, subtask: int, attempt: str, error: ForkpointError) -> bytes:
    return to_commit_blob(stage, subtask, attempt, failure=Failure(type(error).__name__, str(error)))
