"""What can be asked of a running driver, however the request arrives."""

from __future__ import annotations

import os
import threading
import uuid
from concurrent.futures import Future
from dataclasses import asdict

from pydantic import ValidationError

from forkpoint.control.messages import (
    Accepted,
    Answer,
    EpochMessage,
    ErrorCode,
    ErrorDetail,
    FailureMessage,
    HandOverBody,
    JournalMessage,
    LongRequest,
    MetricsMessage,
    RequestBody,
    RescaleBody,
    SavepointBody,
    SavepointMessage,
    SavepointProgress,
    StatusMessage,
    StopBody,
)
from forkpoint.control.metrics import metrics_message, problem_messages
from forkpoint.control.problems import waits_for, waits_to_publish
from forkpoint.control.situation import situation
from forkpoint.driver.run.epochs import wall_clock_ms
from forkpoint.driver.run.job_driver import JobDriver
from forkpoint.errors import ForkpointError

SLOW_MS = 2_000


class Refused(ForkpointError):
    """A request that the driver refuses."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.detail = ErrorDetail(code=code, message=message)


class Commands:
    """The requests to one driver, and the answers to those that take a while, by id."""

    def __init__(self, driver: JobDriver) -> None:
        self._driver = driver
        self._futures: dict[str, Future[str] | Future[int]] = {}
        self._fetched: set[str] = set()
        self._changed = threading.Condition()

    def status(self) -> StatusMessage:
        driver = self._driver
        status, doing, now_ms = driver.status(), self._doing(), wall_clock_ms()
        return StatusMessage(
            job=status.job, run=status.run, state=status.state, epoch=status.epoch, started_ms=status.started_ms,
            now_ms=now_ms, restarts=status.restarts, parallelism=driver.parallelism, records=dict(status.records),
            sources=[o.uid for o in driver.graph.sources], late_records_dropped=dict(status.late_records_dropped),
            ignored_files=dict(status.ignored_files), watermarks=dict(status.watermarks),
            savepoint_progress=self._progress(), rescaling_to=status.rescaling_to, caught_up=status.caught_up,
            failure=status.failure, pid=os.getpid(), doing=doing,
            problems=problem_messages(situation(driver, status, now_ms, doing)),
        )  # fmt: skip

    def journal(self) -> JournalMessage:
        journal, driver = self._driver.journal(), self._driver
        epoch, at_ms = journal.restored or (None, None)
        return JournalMessage(
            job=driver.job, run=driver.run_id, committed=journal.committed, failed=journal.failed, restored_epoch=epoch,
            restored_ms=at_ms, epochs=[EpochMessage.model_validate(asdict(each)) for each in journal.epochs],
            failures=[FailureMessage.model_validate(asdict(each)) for each in journal.failures],
            savepoints=[SavepointMessage.model_validate(asdict(each)) for each in journal.savepoints],
        )  # fmt: skip

    def metrics(self) -> MetricsMessage:
        driver = self._driver
        status = driver.status()
        return metrics_message(
            status, driver.metrics(), situation(driver, status, wall_clock_ms(), None),
            sources={o.uid for o in driver.graph.sources}, parallelism=driver.parallelism,
        )  # fmt: skip

    def request(self, body: LongRequest) -> Accepted:
        """Ask the driver for what takes a while. Raises Refused once the job has ended."""
        self._refuse_ended()
        future = self._asked(body)
        request_id = uuid.uuid4().hex
        with self._changed:
            self._futures[request_id] = future
        return Accepted(request_id=request_id)

    def _asked(self, body: LongRequest) -> Future[str] | Future[int]:
        driver = self._driver
        match body:
            case RescaleBody():
                return driver.rescale(body.parallelism).done
            case HandOverBody():
                return driver.hand_over(body.successor).done
            case StopBody():
                stop = driver.savepoint(
                    body.directory, stop=True, drain=body.drain, skip_unreadable=body.skip_unreadable
                )
                return stop.done
            case SavepointBody():
                taken = driver.savepoint(
                    body.directory, body.label, body.note, skip_unreadable=body.skip_unreadable, epoch=body.epoch
                )
                return taken.done

    def cancel(self) -> StatusMessage:
        """Raises Refused once the job has ended."""
        self._refuse_ended()
        self._driver.cancel()
        return self.status()

    def answer(self, request_id: str) -> Answer:
        """How far a savepoint or rescaling has come. Raises Refused for an unknown id."""
        with self._changed:
            future = self._futures.get(request_id)
            if future is None:
                raise Refused(
                    "not-found",
                    f"there is no request {request_id!r}; /v1/savepoints, /v1/rescale and /v1/stop return ids",
                )
            done = future.done()
            if done:
                self._fetched.add(request_id)
                self._changed.notify_all()
        if not done:
            return Answer(status="IN_PROGRESS", progress=self._progress(), doing=self._doing())
        error = future.exception()
        if error is not None:
            return Answer(status="FAILED", failure=str(error) or type(error).__name__)
        result = future.result()
        if isinstance(result, str):
            return Answer(status="COMPLETED", location=result)
        return Answer(status="COMPLETED", epoch=result)

    def wait_fetched(self, seconds: float) -> bool:
        """Wait until every answer has been fetched; False if the time passed first."""
        with self._changed:
            return self._changed.wait_for(lambda: self._futures.keys() <= self._fetched, seconds)

    def _progress(self) -> SavepointProgress | None:
        progress = self._driver.status().savepoint_progress
        return None if progress is None else SavepointProgress(done=progress[0], total=progress[1])

    def _doing(self) -> str | None:
        """A description of a long epoch or start, or why output is not published or input not read. Else None: asking the engine
        takes a moment."""
        driver = self._driver
        status = driver.status()
        since_ms = wall_clock_ms() - status.started_ms if status.state == "starting" else driver.epoch_ms
        if status.publishing_problem is not None:
            return waits_to_publish(status.unpublished, status.publishing_problem)
        if since_ms > SLOW_MS:
            return driver.doing()
        return next((waits_for(uid, trouble) for uid, trouble in status.reading_problems.items()), None)

    def _refuse_ended(self) -> None:
        driver = self._driver
        if driver.status().state == "ended":
            raise Refused("job-ended", f"job {driver.job!r} has ended; run {driver.run_id} no longer accepts requests")


def bad_request(error: ValidationError, model: type[RequestBody]) -> Refused:
    """For a body that does not fit ``model``."""
    problems = [
        f"{'.'.join(map(str, problem['loc'])) or 'the body'}: {problem['msg']}"
        for problem in error.errors(include_url=False)
    ]
    return Refused("bad-request", f"{'; '.join(problems)}. It takes {', '.join(model.model_fields)}")
