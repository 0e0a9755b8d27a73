"""The short form of ``make kills-starts``."""

from __future__ import annotations

from pathlib import Path

import pytest

from kills.starts import campaign


@pytest.mark.parametrize("kind", ["upgrades", pytest.param("standby_kills", marks=pytest.mark.slow), "drains"])
def test_nothing_is_lost_nothing_comes_twice_and_no_standby_goes(tmp_path: Path, kind: str) -> None:
    counts = {"upgrades": 0, "standby_kills": 0, "drains": 0, kind: 1}
    assert campaign(tmp_path, **counts, seed=1).total() == 1


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [2, 3])
def test_more_of_it(tmp_path: Path, seed: int) -> None:
    assert campaign(tmp_path, upgrades=5, standby_kills=5, drains=5, seed=seed).total() == 15
