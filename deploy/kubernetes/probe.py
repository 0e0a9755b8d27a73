#!/opt/forkpoint/bin/python
"""The probes of a driver's pod: probe.py ready|alive JOB. The state root is FORKPOINT_STATE_ROOT.

ready: the job's driver in this pod answers, and the job runs. alive: fails only if that driver does not answer. While it starts,
or while the state root cannot be reached, nothing is known, which is no reason to restart a driver.
"""

import socket
import sys

from forkpoint.errors import ForkpointError
from forkpoint.operations import list_jobs

RUNNING = ("running", "restarting")


def main(question: str, job: str) -> int:
    try:
        here = [view for view in list_jobs() if view.endpoint is not None and view.endpoint.machine == socket.gethostname()]
    except ForkpointError as error:
        print(error, file=sys.stderr)
        return 0 if question == "alive" else 1
    states = [view.state for view in here if view.job == job]
    print(f"job {job}: {', '.join(states) or 'not here'}")
    if question == "alive":
        return 1 if "silent" in states else 0
    return 0 if any(state in RUNNING for state in states) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
