"""Hundreds of queries end with DuckDB's answer over tables that change, through deaths and a savepoint: counted in one place."""

from __future__ import annotations

from pathlib import Path

import pytest

from servers.jars import BUILD, downloaded
from suites import sqllogic
from suites.counted import Counted, of_file, own, table_of

pytestmark = pytest.mark.slow
COMMIT = "044a04a7cd39e6e8235f756597ae42dde084e5e5"
"""Of DuckDB's repository, from August 2026."""
LEAST = {"aggregate": 150, "join": 200, "setops": 60, "subquery": 120}
"""Of queries that are equal and differ in more than names and numbers, by DuckDB's directories."""


@pytest.fixture(scope="module")
def duckdb_tests() -> Path:
    address = f"https://codeload.github.com/duckdb/duckdb/tar.gz/{COMMIT}"
    unpack = "set -o pipefail; mkdir -p '{0}' && curl -fsSL {1} | tar xz -C '{0}' --strip-components=1 --wildcards '*/test/sql'"
    place, problem = BUILD / f"duckdb-{COMMIT[:12]}", "curl cannot fetch DuckDB's tests"
    return downloaded(place, lambda into: ["bash", "-c", unpack.format(into, address)], problem) / "test/sql"


def check(name: str, found: list[Counted], least: int) -> None:
    print(table_of({name: found}))
    assert not [each.outcome for each in found if each.outcome.kind == "wrong"]
    assert len({each.text for each in found if each.outcome.kind == "equal"}) >= least


def test_the_queries_of_this_repository() -> None:
    found = list(own())
    check("tests of this repository", found, len(found))


@pytest.mark.parametrize("directory", LEAST)
@pytest.mark.timeout(3600)
def test_the_queries_of_duckdb(directory: str, duckdb_tests: Path, tmp_path: Path) -> None:
    found: list[Counted] = []
    for at, file in enumerate(sqllogic.files(duckdb_tests / directory)):
        (into := tmp_path / str(at)).mkdir()
        found += sqllogic.outcomes(file, f"{directory}/{file.name}", into, of_file)
    check(directory, found, LEAST[directory])
