"""The program of docs/opensearch.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import forkpoint as fp
from examples.doc_blocks import ROOT, blocks
from servers.opensearch_server import OpenSearch

(PROGRAM,) = (block for block in blocks(ROOT / "docs" / "opensearch.md") if block.info == "python")


def test_the_program(search: OpenSearch, tmp_path: Path) -> None:
    names: dict[str, Any] = {"__name__": "app"}
    exec(compile(PROGRAM.text, PROGRAM.name, "exec", dont_inherit=True), names)
    env = fp.StreamExecutionEnvironment.get_execution_environment().set_state_root(str(tmp_path))
    names["build"](env, fp.OpenSearchSink(search.url, "totals", id="customer"))
    env.execute("totals")
    assert search.documents("totals") == {
        "ann": {"customer": "ann", "total": 4.5},
        "bob": {"customer": "bob", "total": 2.0},
    }
