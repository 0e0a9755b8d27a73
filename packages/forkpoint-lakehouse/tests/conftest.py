"""Both kinds of table, and a directory for one."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(params=["delta", "iceberg"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    directory = tmp_path / "warehouse"
    directory.mkdir()
    return directory
