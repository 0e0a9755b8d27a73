"""The program of docs/opensearch.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import forkpoint as fp
from examples.doc_blocks import ROOT, blocks
from servers.opensearch_server import OpenSearch

BLOCKS = blocks(ROOT / "docs" / "opensearch.md")
(PROGRAM,), (OF_SQL,) = ([block for block in BLOCKS if block.info == info] for info in ("python", "sql"))


def test_the_program(search: OpenSearch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, Any] = {"__name__": "app"}
    exec(compile(PROGRAM.text, PROGRAM.name, "exec", dont_inherit=True), names)
    env = fp.StreamExecutionEnvironment.get_execution_environment().set_state_root(str(tmp_path))
    names["build"](env, fp.OpenSearchSink(search.url, "totals", id="customer"))
    env.execute("totals")
    assert search.documents("totals") == {
        "ann": {"customer": "ann", "total": 4.5},
        "bob": {"customer": "bob", "total": 2.0},
    }

    monkeypatch.setenv("OPENSEARCH_PASSWORD", "secret")
    tables = fp.StreamTableEnvironment.create(env)
    tables.execute_sql(OF_SQL.text.replace("https://host:9200", search.url).replace(", 'ca-certs' = '/path/ca.pem'", ""))
    tables.execute_sql("INSERT INTO totals VALUES ('ann', DATE '2026-01-02', 3.5)").wait()
    assert search.documents("totals")["ann_2026-01-02"] == {"customer": "ann", "day": "2026-01-02", "euros": 3.5}
