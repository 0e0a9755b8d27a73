"""A task's exception, carried through Spark to the driver as the object it was.

Spark reports a Python task's failure as text. The task therefore appends its exception, encoded, to the message, and
the driver takes it out again: a job fails with the user's own error, not with three stack traces about it. Nothing of
this is stored.
"""

from __future__ import annotations

import base64
import re
import traceback

import cloudpickle

from forkpoint.errors import ForkpointError, UserFunctionError

_MARK = "forkpoint-error:"
_PATTERN = re.compile(re.escape(_MARK) + r"([0-9A-Za-z+/=]+)")
_MAX_ENCODED = 1 << 18


class TaskFailure(Exception):
    """What a task raises instead of its own exception; the message ends in the encoded original."""


def pack_failure(error: BaseException, where: str) -> TaskFailure:
    """The exception to raise in a task in place of `error`; `where` names the stage and subtask."""
    trace = "".join(traceback.format_exception(error))
    if not isinstance(error, ForkpointError):
        error.add_note(f"raised in {where}:\n{trace}")
    try:
        encoded = _encode(error)
    except Exception:
        # An exception that cannot be pickled, or whose attributes cannot, still has its text.
        encoded = ""
    if not encoded or len(encoded) > _MAX_ENCODED:
        encoded = _encode(
            UserFunctionError(f"{type(error).__name__} in {where}: {str(error)[:2000]}\n{trace[-20000:]}")
        )
    return TaskFailure(f"{where}: {type(error).__name__}: {str(error)[:2000]} {_MARK}{encoded}")


def unpack_failure(error: BaseException) -> BaseException | None:
    """The task's exception that Spark's `error` was caused by; None if it did not come from a task of forkpoint."""
    found = _PATTERN.search(str(error))
    if found is None:
        return None
    try:
        original = cloudpickle.loads(base64.b64decode(found.group(1)))
    except Exception as unreadable:
        return UserFunctionError(
            f"a task failed and its exception cannot be read here ({unreadable}); Spark says: {str(error)[:4000]}"
        )
    return original if isinstance(original, BaseException) else None


def _encode(error: BaseException) -> str:
    data = cloudpickle.dumps(error)
    cloudpickle.loads(data)  # exceptions with a signature of their own often pickle but do not come back
    return base64.b64encode(data).decode("ascii")
