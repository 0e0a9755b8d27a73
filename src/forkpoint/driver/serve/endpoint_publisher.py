"""Publishes where a run can be reached: its endpoint.json and its mailbox, while it runs."""

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
    """Between ``begin`` and ``end``, others find the run and command it. ``port`` and ``token``: those of its control port, if it
    has one. ``log``: the log file of a detached driver."""

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
        """The run is no standby any more."""
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
        except StorageError as error:  # then it looks like a run that was killed
            log.warning("run %s could not be taken off the record: %s", self._endpoint.run, error)

    def withdraw(self) -> None:
        """Take the run off the record."""
        withdraw(self._storage, self._endpoint)


def attend(driver: JobDriver, spark: Mapping[str, str] | None) -> Callable[[object], None]:
    """Publish the endpoint of a run whose program was not started by `forkpoint run`, without a port, and record the program.
    Call the result at the run's end.

    ``spark``: the settings that Spark was started with, as a record of the program; None if it can't be started again.
    """
    publisher = EndpointPublisher(driver, Commands(driver))
    try:
        if spark is not None and (program := own_program(spark)) is not None:
            program.record(driver)
        publisher.begin()
    except StorageError as error:  # if the state root is really unusable, the run itself says so
        log.warning("job %r: run %s cannot be commanded from outside: %s", driver.job, driver.run_id, error)
        return lambda outcome: None
    return lambda outcome: publisher.end()
