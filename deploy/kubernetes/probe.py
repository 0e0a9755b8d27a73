#!/opt/forkpoint/bin/python
"""The probes of a driver's pod: probe.py ready|alive JOB. The state root is FORKPOINT_STATE_ROOT.

ready: the driver of the job in this pod answers, and runs the job or stands by. alive: fails only if that driver does not
answer. While it starts, or while the state root cannot be reached, nothing is known: no reason to restart a driver.
"""

import os
import socket
import sys
import threading
from collections.abc import Iterator

from forkpoint.errors import ForkpointError
from forkpoint.operations.roots import StateRoot
from forkpoint.protocol.client import Unreachable
from forkpoint.protocol.endpoint import endpoints
from forkpoint.protocol.http import over_http

READY = ("running", "restarting", "standby")
SILENT = "silent"
SECONDS = 5.0
# Less than the probes' timeoutSeconds, as Kubernetes takes a probe that does not answer for one that fails.
DEADLINE_SECONDS = 12.0


def states(job: str) -> Iterator[str]:
    """What the job's drivers in this pod answer. Those that have ended do not."""
    for endpoint in endpoints(StateRoot().storage, job):
        if endpoint.machine == socket.gethostname() and endpoint.port is not None:
            with over_http(endpoint, SECONDS) as client:
                try:
                    yield client.status().state
                except Unreachable:
                    pass
                except ForkpointError:
                    yield SILENT


def main(question: str, job: str) -> int:
    unknown = 0 if question == "alive" else 1
    deadline = threading.Timer(DEADLINE_SECONDS, os._exit, (unknown,))
    deadline.daemon = True
    deadline.start()
    try:
        found = list(states(job))
    except ForkpointError as error:
        print(error, file=sys.stderr)
        return unknown
    print(f"job {job}: {', '.join(found) or 'no driver here'}")
    if question == "alive":
        return 1 if SILENT in found else 0
    return 0 if any(state in READY for state in found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
