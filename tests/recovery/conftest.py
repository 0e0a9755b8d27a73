"""What the job gives when nothing fails."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from program import Plan
from runs import Outcome, logs, outcome, run_forked, write_input


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Of bounded input."""
    directory = tmp_path_factory.mktemp("undisturbed")
    write_input(directory)
    assert run_forked(Plan(str(directory))) == 0, logs(directory)
    return outcome(directory)


@pytest.fixture(scope="session")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Of the same input as one that goes on: timers are still pending."""
    directory = tmp_path_factory.mktemp("stopped")
    write_input(directory)
    assert run_forked(replace(Plan(str(directory)), stop_after=100)) == 0, logs(directory)
    return outcome(directory)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_input(tmp_path)
    return tmp_path
