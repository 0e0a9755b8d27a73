"""The PostgreSQL that tests use."""

from __future__ import annotations

from pathlib import Path

import pytest

from servers.postgres import Postgres


@pytest.mark.slow  # tests of jobs show it, too
def test_what_was_committed_survives_a_kill(tmp_path: Path) -> None:
    server = Postgres(tmp_path / "server")
    try:
        server.execute("CREATE TABLE t (n int)")
        server.execute("INSERT INTO t VALUES (%s)", 1)
        server.kill()
        assert not server.serves()
        server.start()
        assert server.execute("SELECT n FROM t") == [(1,)]
    finally:
        server.stop()
