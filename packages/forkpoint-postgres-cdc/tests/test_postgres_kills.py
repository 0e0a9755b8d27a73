"""Each change exactly once, though the driver is killed at every step while others write."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc_jobs import create_table, dropped
from programs import ENVIRONMENT, Python
from servers.postgres import Postgres
from table_writers import COLUMNS, Writer, check, seen

PROGRAM = Path(__file__).with_name("following.py")
MARK = 10_000


@pytest.fixture(autouse=True)
def slots(postgres: Postgres) -> Iterator[None]:
    with dropped(postgres):
        yield


def start(postgres: Postgres, table: str, root: Path, *death: str) -> subprocess.Popen[bytes]:
    command = [PROGRAM, postgres.dsn, table, root / "state", root / "out", *death]
    return Python(command, env=ENVIRONMENT, start_new_session=True, stderr=subprocess.PIPE)


def finish(postgres: Postgres, table: str, root: Path, writers: list[Writer]) -> None:
    """Stop the writers, run the program until it has seen everything, and compare."""
    for writer in writers:
        writer.stop()
    postgres.execute(f"INSERT INTO {table} VALUES ({MARK}, 0)")
    driver = start(postgres, table, root)
    try:
        while MARK not in seen(root / "out"):
            assert driver.poll() is None, driver.communicate()[1].decode()[-3000:]
            time.sleep(0.05)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.communicate()
    check(seen(root / "out"), dict(postgres.execute(f"SELECT id, version FROM {table}")))


def writing(postgres: Postgres, table: str) -> list[Writer]:
    writers = [Writer(postgres, table, range(n * 300, n * 300 + 300), n) for n in range(2)]
    for writer in writers:
        writer.prefill()
        writer.start()
    return writers


# In one test, one death after the other: of the same job, whose position each start finds where the last one left it.
DEATHS = [
    ["create", "1"],
    ["create+", "1"],
    ["export", "2"],
    ["chunk", "1"],
    ["chunk", "12"],
    ["commit", "2"],
    ["commit+", "2"],
    ["plan+", "9"],
    ["committed", "2"],
    ["peek", "1"],
    ["peek+", "2"],
    ["advance", "1"],
    ["advance+", "1"],
    ["commit+", "3"],
]


@pytest.mark.slow
def test_a_driver_that_is_killed_at_each_step(postgres: Postgres, tmp_path: Path) -> None:
    table = create_table(postgres, COLUMNS, full=True)
    writers = writing(postgres, table)
    for death in DEATHS:
        driver = start(postgres, table, tmp_path, *death)
        _, errors = driver.communicate()
        assert driver.returncode == -signal.SIGKILL, (death, errors.decode()[-3000:])
    finish(postgres, table, tmp_path, writers)


@pytest.mark.slow
def test_the_server_is_killed_under_driver_and_writers(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> None:
    server = Postgres(tmp_path_factory.mktemp("killed") / "server", fsync="off")
    try:
        table = create_table(server, COLUMNS, full=True)
        writers = writing(server, table)
        driver = start(server, table, tmp_path)
        for changes in (1, 600, 1000):  # while rows are read, and later
            while sum(map(len, seen(tmp_path / "out").values())) < changes:
                assert driver.poll() is None, driver.communicate()[1].decode()[-3000:]
                time.sleep(0.05)
            server.kill()
            server.start()
        os.killpg(driver.pid, signal.SIGKILL)
        driver.communicate()
        finish(server, table, tmp_path, writers)
    finally:
        server.stop()
