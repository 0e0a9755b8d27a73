"""A real server over a state root with a real running job."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from rest_server import JOB, Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for all tests of a module. Job `counting` runs."""
    directory = tmp_path_factory.mktemp("server")
    (directory / "counting.py").write_text(JOB)
    made = Server(directory)
    started = made.forkpoint("run", "-d", "counting.py")
    try:
        yield made
    finally:
        for view in made.forkpoint("list")["jobs"]:
            os.kill(view["pid"], 9)
        assert started["pid"]
        made.close()
