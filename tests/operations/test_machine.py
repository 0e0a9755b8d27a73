"""Checks of the machine that a driver runs on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from forkpoint import operations
from forkpoint.operations import machine
from forkpoint.storage.base import LocalStorage, open_storage


def problems(checks: list[operations.Check]) -> dict[str, str]:
    return {check.name: check.problem for check in checks if check.problem is not None}


def test_a_machine_that_runs_these_tests_has_no_problem(tmp_path: Path) -> None:
    checks = operations.check_machine(str(tmp_path / "state"))
    assert problems(checks) == {}
    found = {check.name: check.found for check in checks}
    assert "forkpoint" in found["Python"]
    assert "PySpark" in found["Java"]
    assert str(tmp_path / "state") in found["state root"]
    assert not list((tmp_path / "state").rglob("*"))  # nothing stays behind


def test_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "does not run" in problems(operations.check_machine(str(tmp_path)))["Java"]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("?", None),
    ],
)
def test_versions_of_java(said: str, expected: int | None) -> None:
    assert machine.java_version(said) == expected


def test_an_old_java_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "Java 17 or newer" in problems(operations.check_machine(str(tmp_path)))["Java"]


def test_a_root_that_cannot_be_written_to_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "state root" in problems(operations.check_machine(str(tmp_path / "file")))


@dataclass(frozen=True)
class Overwriting(LocalStorage):
    """As a file system without exclusive creation would."""

    def create(self, path: str, data: bytes) -> None:
        self.put(path, data)


@dataclass(frozen=True)
class Late(LocalStorage):
    """Lists a file only later, with another clock."""

    def list(self, prefix: str = "", after: str = "") -> list[str]:
        return []

    def modified_ms(self, path: str) -> int:
        return super().modified_ms(path) - 60_000


def test_storage_without_exclusive_creation_is_a_problem(tmp_path: Path) -> None:
    assert "8 of 8 writers" in str(machine.check_storage(Overwriting(str(tmp_path))).problem)


def test_storage_that_lags_is_a_problem(tmp_path: Path) -> None:
    problem = str(machine.check_storage(Late(str(tmp_path))).problem)
    assert "its clock differs by 60 s" in problem
    assert "a listing lacks a file" in problem


def test_memory_storage_has_no_problem() -> None:
    assert machine.check_storage(open_storage("memory://doctor")).problem is None
