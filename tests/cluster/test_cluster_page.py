"""docs/cluster.md says what the code does: its limits, and the messages of hosts that cannot run a job."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from forkpoint.driver.commit import manifests
from forkpoint.driver.run import epochs
from forkpoint.graph.options import DEFAULT_MAX_PARALLELISM
from forkpoint.runtime.tasks import preflight
from forkpoint.state import lmdb_store, write_back

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "cluster.md").read_text()
SOURCES = ["driver/start/preflight.py", "runtime/tasks/preflight.py", "spark/failures.py", "storage/object_storage.py"]


def section(title: str) -> str:
    return " ".join(re.split(r"^## ", PAGE.split(f"\n## {title}\n")[1], flags=re.MULTILINE)[0].split())


def test_limits() -> None:
    sizing = section("Sizing")
    held = write_back.MAX_ENTRIES, write_back.MAX_BYTES >> 20, write_back.MAX_EPOCHS
    assert "up to {:,} entries, {} MiB of values or {} epochs".format(*held) in sizing
    assert f"after {epochs.SNAPSHOT_CHAIN} epochs" in sizing
    assert f"its last snapshot and {manifests.SNAPSHOT_FLOOR >> 20} MiB" in sizing
    assert f"`set_max_parallelism` ({DEFAULT_MAX_PARALLELISM})" in sizing
    assert f"starts with {lmdb_store.DEFAULT_MAP_SIZE >> 30} GB of address space" in sizing
    assert f"at least {preflight.MIN_FREE_BYTES >> 20} MiB free" in section("What every host needs")
    assert preflight.MAX_CLOCK_SKEW_MS == 60_000
    assert "at most a minute from the driver's" in section("What every host needs")


def messages() -> list[str]:
    table = PAGE.split("\n## Troubleshooting\n")[1].split("\n\n")[1]
    return [row.split(" | ")[0].removeprefix("| ") for row in table.splitlines()[2:]]


def literals() -> str:
    """The texts of the sources' messages; what is put into them is left out."""
    found = []
    for source in SOURCES:
        for node in ast.walk(ast.parse((ROOT / "src" / "forkpoint" / source).read_text())):
            if isinstance(node, ast.JoinedStr):
                found.append("".join(str(part.value) for part in node.values if isinstance(part, ast.Constant)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return "\n".join(found)


@pytest.mark.parametrize("message", messages())
def test_messages(message: str) -> None:
    """What stands for values is in capitals, or is an example in quotes."""
    fragments = [part.strip(" ,;:") for part in re.split(r"\b[A-Z]+(?:_\S+)?\b|'\w+'|…|;", message)]
    told = [part for part in fragments if len(part) >= 8]
    assert told
    for part in told:
        assert part in literals(), part
