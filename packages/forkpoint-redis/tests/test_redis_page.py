"""The program of docs/redis.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from examples.doc_blocks import ROOT, blocks
from servers.redis_server import Redis

(PROGRAM,) = (block for block in blocks(ROOT / "docs" / "redis.md") if block.info == "python")


def test_the_program(server: Redis, tmp_path: Path) -> None:
    server.client.flushall()
    names: dict[str, Any] = {"__name__": "app"}
    exec(compile(PROGRAM.text, PROGRAM.name, "exec", dont_inherit=True), names)
    env = names["fp"].StreamExecutionEnvironment.get_execution_environment().set_state_root(str(tmp_path))
    names["build"](env, server.url)
    env.execute("visits")
    assert server.client.mget("visits:home", "visits:help") == ["2", "1"]
    assert sorted(fields["user"] for _, fields in server.client.xrange("visits")) == ["ann", "ann", "bob"]
