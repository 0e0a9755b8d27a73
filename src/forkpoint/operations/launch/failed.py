"""The failures of programs and drivers that operations start."""

from __future__ import annotations

from forkpoint.errors import ForkpointError, JobFailed


class ProgramFailed(ForkpointError):
    """A program raised ``error``, in its own code or in a call of forkpoint."""

    def __init__(self, app: str, error: BaseException) -> None:
        first = next(iter(str(error).splitlines()), "")
        super().__init__(f"{app} raised {type(error).__name__}: {first}".rstrip(": "))
        self.app = app
        self.error = error


class NoJob(ForkpointError):
    """A program ended without running a job."""

    def __init__(self, app: str) -> None:
        sql = app.endswith(".sql")
        super().__init__(
            f"{app} has no INSERT, so there is no job to run; write INSERT INTO table SELECT …"
            if sql
            else f"{app} ended without running a job; call execute() on its environment"
        )


class DriverFailed(JobFailed):
    """A driver process failed. ``code``, ``exit_code``: of `forkpoint run`; ``log_tail``: the last lines of its log; ``run``: the
    last run that it was about to start."""

    def __init__(self, message: str, code: str, exit_code: int, log_tail: str | None, run: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.exit_code = exit_code
        self.log_tail = log_tail
        self.run = run
