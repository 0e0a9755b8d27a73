"""From Kinesis through state to Kinesis, though the driver is killed: nothing is lost, or counted twice; only sent twice."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

from programs import ENVIRONMENT, Python
from servers.kinesis_server import Kinesis, by_key

PROGRAM = Path(__file__).with_name("kinesis_counting.py")
USERS, RECORDS = 6, 60


def put(kinesis: Kinesis, stream: str, start: int = 0, stop: int = RECORDS) -> None:
    events = ({"user": n % USERS, "number": n} for n in range(start, stop))
    kinesis.put(stream, [(str(event["user"]), json.dumps(event).encode()) for event in events])


def program(kinesis: Kinesis, stream: str, to: str, root: Path, *death: str) -> subprocess.Popen[bytes]:
    command = [PROGRAM, kinesis.endpoint, stream, to, root, *death]
    return Python(command, env=ENVIRONMENT, start_new_session=True, stderr=subprocess.PIPE)


def counts(kinesis: Kinesis, stream: str) -> dict[str, list[tuple[int, int]]]:
    """Each user's records in order, the first time they come: their numbers and counts."""
    found = by_key(kinesis.read(stream))
    return {user: list(dict.fromkeys((r["number"], r["count"]) for r in records)) for user, records in found.items()}


def expected(records: int = RECORDS) -> dict[str, list[tuple[int, int]]]:
    return {str(user): [(n, n // USERS + 1) for n in range(user, records, USERS)] for user in range(USERS)}


@pytest.mark.slow
@pytest.mark.parametrize("step", ["take+", "commit", "put", "put+"])
def test_a_driver_that_is_killed_at_a_step(kinesis: Kinesis, tmp_path: Path, step: str) -> None:
    stream, to = kinesis.create_stream(shards=2), kinesis.create_stream(shards=2)
    put(kinesis, stream)
    died = program(kinesis, stream, to, tmp_path, step, "3")
    assert died.wait() == -9, died.communicate()[1].decode()[-3000:]
    driver = program(kinesis, stream, to, tmp_path)
    while counts(kinesis, to) != expected():
        assert driver.poll() is None, driver.communicate()[1].decode()[-3000:]
        time.sleep(0.05)
    driver.kill()
    driver.communicate()
    assert len(kinesis.read(to)) <= RECORDS + 20
