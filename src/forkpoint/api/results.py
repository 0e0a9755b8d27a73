"""Clients and results of running and finished jobs."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakSet

from forkpoint.api.display import job_html, job_text, show_job
from forkpoint.types.variables import T_co

if TYPE_CHECKING:
    from forkpoint.api.execution import Job
    from forkpoint.checkpoint.savepoint_manifest import Savepoint
    from forkpoint.driver.run.stop import Result
    from forkpoint.savepoint.restore.restore_plan import RestorePlan


class JobStatus(Enum):
    """The status of a job, as in Flink."""

    INITIALIZING = "INITIALIZING"
    CREATED = "CREATED"
    RUNNING = "RUNNING"
    RESTARTING = "RESTARTING"
    FAILING = "FAILING"
    FAILED = "FAILED"
    CANCELLING = "CANCELLING"
    CANCELED = "CANCELED"
    FINISHED = "FINISHED"
    SUSPENDED = "SUSPENDED"

    @property
    def is_terminal(self) -> bool:
        """Whether the job has ended."""
        return self in (JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED)

    def is_terminal_state(self) -> bool:
        """``is_terminal`` under PyFlink's name."""
        return self.is_terminal

    is_globally_terminal_state = is_terminal_state


@dataclass(frozen=True)
class JobExecutionResult:
    """The outcome of a job. ``savepoint``: the path of the savepoint that stopped it, None without one."""

    job_id: str
    job_name: str
    status: JobStatus
    net_runtime: timedelta
    savepoint: str | None = None

    def get_job_id(self) -> str:
        """The job's id."""
        return self.job_id

    def get_net_runtime(self) -> int:
        """The duration of the run in int milliseconds."""
        return self.net_runtime // timedelta(milliseconds=1)

    def get_all_accumulator_results(self) -> dict[str, Any]:
        """Empty, as in PyFlink, where functions use metrics rather than accumulators."""
        return {}

    def get_accumulator_result(self, accumulator_name: str) -> Any:
        """None; see ``get_all_accumulator_results``."""
        return self.get_all_accumulator_results().get(accumulator_name)


@dataclass(frozen=True)
class CheckResult:
    """What a restore of a job from a savepoint would do.

    ``path``: the savepoint or, if the job has none, its newest checkpoint; ``savepoint`` is then None. ``epoch`` and
    ``saved_job``: the origin of the saved state. ``plan``: a row for each operator, state and source, with its outcome.
    """

    job: str
    path: str
    savepoint: Savepoint | None
    plan: RestorePlan
    epoch: int
    saved_job: str

    @property
    def fits(self) -> bool:
        """Whether the restore would be accepted."""
        return not self.plan.refused


_EXIT_WAIT_SECONDS = 30.0


class JobClient:
    """A job started with ``execute_async``, on a thread of this process. If it fails, every future fails with JobFailed."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._result: Future[JobExecutionResult] = Future()
        _started.add(self)
        self._thread = threading.Thread(target=self._run, args=(job.begin(),), name=f"forkpoint-{job.name}", daemon=True)
        self._thread.start()

    def _run(self, run: Callable[[], Result]) -> None:
        try:
            self._result.set_result(self.job.result(run()))
        except BaseException as error:
            self._result.set_exception(error)

    def __repr__(self) -> str:
        return job_text(self)

    def _repr_html_(self) -> str:
        return job_html(self)

    def _ipython_display_(self) -> None:
        """Display a table that is updated until the job ends."""
        show_job(self)

    def get_job_id(self) -> str:
        """The job's id."""
        return self.job.driver.run_id

    def get_job_status(self) -> Future[JobStatus]:
        """The job's current status."""
        status: Future[JobStatus] = Future()
        state = self.job.driver.status().state
        if self._result.done():
            failed = self._result.exception() is not None
            status.set_result(JobStatus.FAILED if failed else self._result.result().status)
        else:
            names = {"starting": JobStatus.INITIALIZING, "restarting": JobStatus.RESTARTING}
            status.set_result(names.get(state, JobStatus.RUNNING))
        return status

    def cancel(self) -> Future[None]:
        """Cancel the job without a savepoint; the future completes when it has ended."""
        self.job.driver.cancel()
        self._wait_at_exit()
        done: Future[None] = Future()
        self._result.add_done_callback(lambda _: done.set_result(None))
        return done

    def _wait_at_exit(self) -> None:
        """Make an exiting program wait for the end of the job instead of killing the job's threads."""
        atexit.register(self._thread.join, _EXIT_WAIT_SECONDS)

    def stop_with_savepoint(
        self,
        advance_to_end_of_event_time: bool = False,
        savepoint_directory: str | None = None,
        *,
        self_contained: bool = False,
    ) -> Future[str]:
        """Stop the job with a savepoint, atomically; the future returns its path.

        ``advance_to_end_of_event_time``: fire all event-time timers and windows first.
        """
        self._wait_at_exit()
        drain = advance_to_end_of_event_time
        return self.job.driver.savepoint(savepoint_directory, stop=True, drain=drain, self_contained=self_contained).done

    def trigger_savepoint(
        self, savepoint_directory: str | None = None, label: str | None = None, *, self_contained: bool = False
    ) -> Future[str]:
        """Take a savepoint while the job continues; the future returns its path. ``self_contained``: it does not refer to files
        of earlier savepoints."""
        return self.job.driver.savepoint(savepoint_directory, label, self_contained=self_contained).done

    def rescale(self, parallelism: int) -> Future[int]:
        """Change the parallelism while the job runs; the future returns the first epoch with the new parallelism."""
        return self.job.driver.rescale(parallelism).done

    def get_job_execution_result(self) -> Future[JobExecutionResult]:
        """The result of the job, once it has ended."""
        return self._result

    def get_accumulators(self) -> Future[dict[str, Any]]:
        """Empty; see ``JobExecutionResult.get_all_accumulator_results``."""
        accumulators: Future[dict[str, Any]] = Future()
        accumulators.set_result({})
        return accumulators


_started: WeakSet[JobClient] = WeakSet()


def wait_for_jobs() -> None:
    """Wait for the end of all jobs that this process has started. Raises the error of one that fails."""
    for client in list(_started):
        client.get_job_execution_result().result()


class CloseableIterator(Iterator[T_co]):
    """The elements of ``execute_and_collect``. Use it in a ``with`` block, or call ``close()``."""

    def __init__(self, elements: Iterable[T_co]) -> None:
        self._elements = iter(elements)

    def __next__(self) -> T_co:
        return next(self._elements)

    def next(self) -> T_co:
        """The next element, as with the built-in ``next``."""
        return next(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancel the job if it is still running. No more elements follow."""
        close = getattr(self._elements, "close", None)
        self._elements = iter(())
        if close is not None:
            close()
