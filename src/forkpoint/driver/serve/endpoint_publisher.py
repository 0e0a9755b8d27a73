"""Publishes the address of a run, its endpoint.json, and keeps its mailbox while it runs."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Mapping

from forkpoint.driver.run.epochs import wall_clock_ms
from forkpoint.driver.run.job_driver import JobDriver
from forkpoint.driver.serve.commands import Commands
from forkpoint.driver.start.programs import own_program
from forkpoint.errors import StorageError
from forkpoint.protocol.endpoint import HOST, Endpoint, register, withdraw
from forkpoint.protocol.mailbox import Mailbox

log = logging.getLogger("forkpoint")


class EndpointPublisher:
    """Between ``begin`` and ``end``, clients can find and command the run. ``port`` and ``token``: of its control port, if any.
    ``log``: the log file of a detached driver."""

    def __init__(
        self, driver: JobDriver, commands: Commands, *, port: int | None = None, token: str | None = None, log: str | None = None
    ) -> None:
        self._storage = driver.history.storage
        self._mailbox = Mailbox(self._storage, driver.job, driver.run_id, commands)
        self._endpoint = Endpoint(
            job=driver.job,
            run=driver.run_id,
            pid=os.getpid(),
            machine=socket.gethostname(),
            host=HOST,
            port=port,
            token=token,
            started_ms=wall_clock_ms(),
            log=log,
            standby=driver.standby,
        )
        driver.on_leading = self._lead

    def begin(self) -> None:
        register(self._storage, self._endpoint)
        self._mailbox.start()

    def _lead(self) -> None:
        """The run is no longer a standby."""
        self._endpoint = self._endpoint.replace(standby=False)
        try:
            register(self._storage, self._endpoint)
        except StorageError as error:
            log.warning("run %s still seems to be a standby: %s", self._endpoint.run, error)

    def end(self) -> None:
        """Call this once the run has ended."""
        try:
            self._mailbox.close()
            self.withdraw()
        except StorageError as error:  # the run then looks like one that was killed
            log.warning("the endpoint of run %s could not be removed: %s", self._endpoint.run, error)

    def withdraw(self) -> None:
        """Remove the run's endpoint."""
        withdraw(self._storage, self._endpoint)


def attend(driver: JobDriver, spark: Mapping[str, str] | None) -> Callable[[object], None]:
    """Publish the endpoint of a run without a control port, whose program was not started by `forkpoint run`, and record the
    program. Call the result at the run's end. ``spark``: Spark's settings for that record; None if the program can't be started
    again."""
    publisher = EndpointPublisher(driver, Commands(driver))
    try:
        if spark is not None and (program := own_program(spark)) is not None:
            program.record(driver)
        publisher.begin()
    except StorageError as error:  # if the state root is unusable, the run itself fails
        log.warning("job %r: run %s cannot be commanded from outside: %s", driver.job, driver.run_id, error)
        return lambda outcome: None
    return lambda outcome: publisher.end()
