"""The program of docs/redis.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import forkpoint as fp
from examples.doc_blocks import ROOT, blocks
from servers.redis_server import Redis

BLOCKS = blocks(ROOT / "docs" / "redis.md")
(PROGRAM,), (OF_SQL,) = ([block for block in BLOCKS if block.info == info] for info in ("python", "sql"))


def test_the_program(server: Redis, tmp_path: Path) -> None:
    server.client.flushall()
    names: dict[str, Any] = {"__name__": "app"}
    exec(compile(PROGRAM.text, PROGRAM.name, "exec", dont_inherit=True), names)
    env = fp.StreamExecutionEnvironment.get_execution_environment().set_state_root(str(tmp_path))
    names["build"](env, server.url)
    env.execute("visits")
    assert server.client.mget("visits:home", "visits:help") == ["2", "1"]
    assert sorted(fields["user"] for _, fields in server.client.xrange("visits")) == ["ann", "ann", "bob"]

    tables = fp.StreamTableEnvironment.create(env)
    tables.execute_sql(OF_SQL.text.replace("redis://host:6379", server.url).replace(", 'password' = '${env:REDIS_PASSWORD}'", ""))
    tables.execute_sql("INSERT INTO totals VALUES ('ann', DATE '2026-01-02', 3.5)").wait()
    assert server.client.hgetall("totals:ann:2026-01-02") == {"customer": "ann", "day": "2026-01-02", "euros": "3.50"}
