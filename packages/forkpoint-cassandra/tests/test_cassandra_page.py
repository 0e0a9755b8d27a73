"""The program of docs/cassandra.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import forkpoint as fp
from examples.doc_blocks import ROOT, blocks
from servers.cassandra_server import PASSWORD, USER, Cassandra

BLOCKS = blocks(ROOT / "docs" / "cassandra.md")
(PROGRAM,) = (block for block in BLOCKS if block.info == "python")
TABLE, OF_SQL, LEDGER = (block for block in BLOCKS if block.info == "sql")


@pytest.mark.slow
def test_the_program(cassandra: Cassandra, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cassandra.execute("CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    cassandra.execute(TABLE.text)
    cassandra.execute(LEDGER.text)
    names: dict[str, Any] = {"__name__": "app"}
    exec(compile(PROGRAM.text, PROGRAM.name, "exec", dont_inherit=True), names)
    env = fp.StreamExecutionEnvironment.get_execution_environment().set_state_root(str(tmp_path))
    names["build"](env, fp.CassandraSink(cassandra.address, "shop", "totals", username=USER, password=PASSWORD))
    env.execute("totals")
    assert sorted(map(tuple, cassandra.execute("SELECT * FROM shop.totals"))) == [("ann", 4.5), ("bob", 2.0)]

    monkeypatch.setenv("CASSANDRA_PASSWORD", PASSWORD)
    tables = fp.StreamTableEnvironment.create(env)
    tables.execute_sql(OF_SQL.text.replace("host:9042", cassandra.address).replace("'app'", f"'{USER}'"))
    tables.execute_sql("INSERT INTO totals VALUES ('ann', 5), ('eve', 1)").wait()
    assert sorted(map(tuple, cassandra.execute("SELECT * FROM shop.totals"))) == [("ann", 5.0), ("bob", 2.0), ("eve", 1.0)]
