"""The command line's errors and exit codes. Pure."""

from __future__ import annotations

import linecache
import os
import traceback
from dataclasses import dataclass, replace

from forkpoint.errors import (
    ForkpointError,
    JobFailed,
    JobNotFound,
    RestoreRefused,
    SavepointCorrupt,
    SavepointNotFound,
    StateNotFound,
)
from forkpoint.extras import is_own_frame
from forkpoint.operations import DriverFailed, NoJob, ProgramFailed

OK, FAILED, USAGE, JOB_FAILED, REFUSED, NOT_FOUND = 0, 1, 2, 3, 4, 5
_EXIT_CODES: dict[type[ForkpointError], int] = {
    RestoreRefused: REFUSED,
    SavepointNotFound: NOT_FOUND,
    StateNotFound: NOT_FOUND,
    JobNotFound: NOT_FOUND,
    JobFailed: JOB_FAILED,
}  # of these classes and their subclasses; all others: FAILED


@dataclass(frozen=True)
class Failure:
    """An error to print. ``code``: its name in JSON. ``details``: a traceback or the end of a log."""

    code: str
    message: str
    exit_code: int
    details: str | None = None
    cause: BaseException | None = None

    def with_traceback(self) -> Failure:
        """The failure with the full traceback, for ``--verbose``."""
        if self.cause is None:
            return self
        return replace(self, details="".join(traceback.format_exception(self.cause)).rstrip())


def describe(error: ForkpointError) -> Failure:
    """The failure for a forkpoint error."""
    match error:
        case ProgramFailed():
            return _program_failure(error)
        case DriverFailed():
            return Failure(error.code, str(error), error.exit_code, error.log_tail)
        case NoJob():
            return Failure("NoJob", str(error), FAILED)
    exit_code = next((code for kind, code in _EXIT_CODES.items() if isinstance(error, kind)), FAILED)
    return Failure(type(error).__name__, str(error) or type(error).__name__, exit_code, cause=error)


def of_job(error: BaseException) -> Failure:
    """The failure for any error that ended a job."""
    if not isinstance(error, ForkpointError):
        message = f"the job failed: {type(error).__name__}: {error}"
        return Failure("JobFailed", message, JOB_FAILED, cause=error).with_traceback()
    described = describe(error)
    if isinstance(error, SavepointCorrupt):
        return replace(described, exit_code=REFUSED)
    if described.exit_code == FAILED:
        return replace(described, message=f"the job failed: {described.message}", exit_code=JOB_FAILED)
    return described


def _program_failure(failed: ProgramFailed) -> Failure:
    error, program = failed.error, os.path.abspath(failed.app)
    if isinstance(error, ForkpointError):
        failure, place = describe(error), user_place(error, program)
        return failure if place is None else replace(failure, message=f"{failure.message}\n  at {place}")
    return Failure("ProgramError", str(failed), FAILED, user_traceback(error, program), error)


def user_traceback(error: BaseException, program: str) -> str:
    """The traceback as ``python`` would print it, starting at the program's first frame."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != program:
        trace = trace.tb_next  # ends with None for a syntax error in the program, which has no frame
    return "".join(traceback.format_exception(type(error), error, trace)).rstrip()


def user_place(error: BaseException, program: str) -> str | None:
    """The call in the program that raised: "app.py:12, in build: env.execute()"."""
    place = None
    for frame, number in traceback.walk_tb(error.__traceback__):
        if place is not None and is_own_frame(frame):
            break
        code = frame.f_code
        if place is not None or code.co_filename == program:
            line = linecache.getline(code.co_filename, number).strip()
            place = f"{code.co_filename}:{number}, in {code.co_name}: {line}"
    return place
