"""The program of docs/postgres-cdc.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import forkpoint as fp
from cdc_jobs import dropped
from examples.doc_blocks import ROOT, blocks
from forkpoint.api.execution import prepare
from forkpoint.api.launch import Launch
from forkpoint.errors import ConfigError
from servers.postgres import Postgres

(PROGRAM,) = (block for block in blocks(ROOT / "docs" / "postgres-cdc.md") if block.info == "python")
BOUNDED = PROGRAM.text.replace('"shop", Order)', '"shop", Order, is_bounded=True)')
TABLE = """
DROP PUBLICATION IF EXISTS shop; DROP TABLE IF EXISTS orders;
CREATE TABLE orders (id INT PRIMARY KEY, customer TEXT NOT NULL, cents INT NOT NULL);
ALTER TABLE orders REPLICA IDENTITY FULL; CREATE PUBLICATION shop FOR TABLE orders;
INSERT INTO orders VALUES (1, 'ann', 100), (2, 'bob', 200), (3, 'ann', 50)
"""


def run(postgres: Postgres, root: Path, conninfo: str, **launch: Any) -> dict[str, int]:
    """The last revenues that a run writes, which ends with the changes that there are."""
    names: dict[str, Any] = {"__name__": "app"}
    exec(compile(BOUNDED, PROGRAM.name, "exec", dont_inherit=True), names)
    env = fp.StreamExecutionEnvironment.get_execution_environment().set_state_root(str(root / "state"))
    names["revenue"](env, conninfo).sink_to(fp.FileSink.json(str(root / "out"))).uid("out")
    env.launch = Launch(options={"engine": "local"}, **launch)
    prepare(env, "revenue").begin()()
    found: dict[str, int] = {}
    for file in sorted((root / "out").glob("*.jsonl")):
        for row in map(json.loads, file.read_text().splitlines()):
            found[row["customer"]] = row["cents"]
    return found


def test_the_program(postgres: Postgres, tmp_path: Path) -> None:
    assert PROGRAM.text != BOUNDED
    postgres.execute(TABLE)
    with dropped(postgres):
        assert run(postgres, tmp_path, postgres.dsn) == {"ann": 150, "bob": 200}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: p.dsn.replace("secret", "wrong"), "password"),
        (lambda p: p.dsn.replace("dbname=tests", "dbname=absent"), "absent"),
        (lambda p: p.execute("DROP PUBLICATION shop") or p.dsn, "publication"),
        (lambda p: p.execute("DROP TABLE orders") or p.dsn, "orders"),
    ],
    ids=["password", "database", "publication", "table"],
)
def test_wrong_settings_end_the_start(postgres: Postgres, tmp_path: Path, change: Any, message: str) -> None:
    postgres.execute(TABLE)
    conninfo = change(postgres)
    with dropped(postgres), pytest.raises(ConfigError, match=message):
        run(postgres, tmp_path, conninfo)
