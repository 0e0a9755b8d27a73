"""Executes requests to a driver, independent of the transport."""

from __future__ import annotations

import os
import threading
import uuid
from concurrent.futures import Future
from typing import Any

from forkpoint.driver.observe.problems import problems, waits_for, waits_to_publish
from forkpoint.driver.run.epochs import wall_clock_ms
from forkpoint.driver.run.job_driver import JobDriver
from forkpoint.driver.serve.reports import metrics_message, situation
from forkpoint.protocol import messages as m

SLOW_MS = 2_000


class Commands:
    """Executes the requests to one driver, and keeps the answers to long requests by id."""

    def __init__(self, driver: JobDriver) -> None:
        self._driver = driver
        self._accepted: dict[str, tuple[m.LongRequest[Any], Future[str] | Future[int]]] = {}
        self._fetched: set[str] = set()
        self._changed = threading.Condition()

    def ask(self, request: m.Request[Any]) -> m.Message:
        """The answer to a request, or the acceptance of a long request. Raises Refused, for example once the job has ended."""
        match request:
            case m.StatusRequest():
                return self.status()
            case m.JournalRequest():
                return self.journal()
            case m.MetricsRequest():
                return self.metrics()
            case m.CancelRequest():
                self._refuse_ended()
                self._driver.cancel()
                return self.status()
            case m.LongRequest():
                return self._accept(request)
        raise TypeError(f"no command for {request!r}")

    def status(self) -> m.StatusMessage:
        driver = self._driver
        status, doing, now_ms = driver.status(), self._doing(), wall_clock_ms()
        return m.StatusMessage(
            job=status.job,
            run=status.run,
            state=status.state,
            epoch=status.epoch,
            started_ms=status.started_ms,
            now_ms=now_ms,
            restarts=status.restarts,
            parallelism=driver.parallelism,
            records=dict(status.records),
            sources=[o.uid for o in driver.graph.sources],
            late_records_dropped=dict(status.late_records_dropped),
            ignored_files=dict(status.ignored_files),
            watermarks=dict(status.watermarks),
            savepoint_progress=self._progress(),
            rescaling_to=status.rescaling_to,
            caught_up=status.caught_up,
            failure=status.failure,
            pid=os.getpid(),
            doing=doing,
            problems=problems(situation(driver, status, now_ms, doing)),
        )

    def journal(self) -> m.JournalMessage:
        journal, driver = self._driver.journal(), self._driver
        epoch, at_ms = journal.restored or (None, None)
        return m.JournalMessage(
            driver.job,
            driver.run_id,
            list(journal.epochs),
            list(journal.failures),
            list(journal.savepoints),
            journal.committed,
            journal.failed,
            epoch,
            at_ms,
        )

    def metrics(self) -> m.MetricsMessage:
        driver = self._driver
        status = driver.status()
        return metrics_message(
            status,
            driver.metrics(),
            situation(driver, status, wall_clock_ms(), None),
            sources={o.uid for o in driver.graph.sources},
            parallelism=driver.parallelism,
        )

    def _accept(self, request: m.LongRequest[Any]) -> m.Accepted:
        self._refuse_ended()
        done = self._start(request)
        request_id = uuid.uuid4().hex
        with self._changed:
            self._accepted[request_id] = request, done
        return m.Accepted(request_id)

    def _start(self, request: m.LongRequest[Any]) -> Future[str] | Future[int]:
        driver = self._driver
        match request:
            case m.RescaleRequest(parallelism):
                return driver.rescale(parallelism).done
            case m.HandOverRequest(successor):
                return driver.hand_over(successor).done
            case m.StopRequest(directory, drain, skip, own):
                return driver.savepoint(directory, stop=True, drain=drain, skip_unreadable=skip, self_contained=own).done
            case m.SavepointRequest(directory, label, note, skip, epoch, own):
                return driver.savepoint(directory, label, note, skip_unreadable=skip, epoch=epoch, self_contained=own).done
        raise TypeError(f"no command for {request!r}")

    def answer(self, request_id: str) -> m.LongAnswer:
        """The progress or result of an accepted request. Raises Refused for an unknown id."""
        with self._changed:
            if request_id not in self._accepted:
                raise m.Refused(
                    "not-found", f"there is no request {request_id!r}; /v1/savepoints, /v1/rescale and /v1/stop return ids"
                )
            request, future = self._accepted[request_id]
            done = future.done()
            if done:
                self._fetched.add(request_id)
                self._changed.notify_all()
        if not done:
            if request.outcome is m.SavepointAnswer:
                return m.SavepointAnswer(status="IN_PROGRESS", doing=self._doing(), progress=self._progress())
            return request.outcome(status="IN_PROGRESS", doing=self._doing())
        error = future.exception()
        if error is not None:
            return request.outcome(status="FAILED", failure=str(error) or type(error).__name__)
        result = future.result()
        if isinstance(result, str):
            return m.SavepointAnswer(status="COMPLETED", location=result)
        kind = m.HandOverAnswer if isinstance(request, m.HandOverRequest) else m.RescaleAnswer
        return kind(status="COMPLETED", epoch=result)

    def wait_fetched(self, seconds: float) -> bool:
        """Wait until clients have fetched all answers; returns False on a timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: self._accepted.keys() <= self._fetched, seconds)

    def _progress(self) -> m.SavepointProgress | None:
        progress = self._driver.status().savepoint_progress
        return None if progress is None else m.SavepointProgress(*progress)

    def _doing(self) -> str | None:
        """The activity of a long epoch or start, or why publishing or reading is delayed. Otherwise None, without a query to the
        engine, which takes time."""
        driver = self._driver
        status = driver.status()
        since_ms = wall_clock_ms() - status.started_ms if status.state == "starting" else driver.epoch_ms
        if status.publishing_problem is not None:
            return waits_to_publish(status.unpublished, status.publishing_problem)
        waiting = next((waits_for(uid, trouble) for uid, trouble in status.reading_problems.items()), None)
        if since_ms <= SLOW_MS:
            return waiting
        return driver.doing() if waiting is None else f"{driver.doing()}; {waiting}"

    def _refuse_ended(self) -> None:
        driver = self._driver
        if driver.status().state == "ended":
            raise m.Refused("job-ended", f"job {driver.job!r} has ended; run {driver.run_id} no longer accepts requests")
