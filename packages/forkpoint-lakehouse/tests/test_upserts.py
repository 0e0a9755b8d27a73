"""Rows that are replaced and deleted by key, in both kinds of table."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from forkpoint.connectors.formats.changes import change_type
from forkpoint.errors import ConfigError
from forkpoint.types import RowKind
from programs import ENVIRONMENT, run_python
from table_jobs import KEYS, make_sink
from table_reading import read, run, sunk
from test_appends import ELEMENTS, LIBRARIES, PROGRAM

NEWEST = {n % KEYS: (n % KEYS, n // KEYS + 1, f"key {n % KEYS}") for n in range(ELEMENTS)}


def test_the_last_row_of_each_key_is_in_the_table(kind: str, tmp_path: Path, place: Path) -> None:
    run(tmp_path / "root", make_sink(kind, str(place), mode="upsert", key=("key",)), ELEMENTS)
    assert [tuple(row.values()) for row in read(kind, place)] == sorted(NEWEST.values())


@pytest.mark.parametrize("step", ["commit", "commit+"])
def test_a_driver_that_is_killed_at_a_step_of_an_upsert(kind: str, tmp_path: Path, place: Path, step: str) -> None:
    program = [PROGRAM, f"{kind}-upsert", place, tmp_path / "root", ELEMENTS]
    died = run_python([*program, step, "3"], env=ENVIRONMENT, loading=LIBRARIES, capture_output=True)
    assert died.returncode == -9, died.stderr.decode()
    run_python(program, env=ENVIRONMENT, loading=LIBRARIES, check=True)
    assert [tuple(row.values()) for row in read(kind, place)] == sorted(NEWEST.values())


class User(NamedTuple):
    """A row of a database."""

    id: int
    name: str
    tags: list[str] | None = None


def changed(kind: RowKind, before: User | None, after: User | None) -> Any:
    return change_type(User).python_class(kind, before, after, None, None, None)


@pytest.mark.parametrize("per_epoch", [1, 2, 100])
def test_changes_of_a_database_are_made_to_the_table(kind: str, tmp_path: Path, place: Path, per_epoch: int) -> None:
    ann, bob, cid, renamed = User(1, "ann"), User(2, "bob", ["x"]), User(3, "cid"), User(2, "rob", [])
    insert, update, delete = RowKind.INSERT, RowKind.UPDATE_AFTER, RowKind.DELETE
    changes = [
        changed(insert, None, ann),
        changed(insert, None, bob),
        changed(insert, None, cid),
        changed(update, bob, renamed),
        changed(delete, ann, None),
        changed(update, cid, User(4, "cid")),
        changed(delete, User(9, "none"), None),
        changed(insert, None, ann),
        changed(delete, ann, None),
    ]
    sink = make_sink(kind, str(place), mode="upsert", key=["id"])
    sunk(tmp_path / "root", changes, change_type(User), sink, per_epoch)
    assert read(kind, place) == [User(2, "rob", [])._asdict(), User(4, "cid")._asdict()]


class Cell(NamedTuple):
    row: int
    column: str
    value: float


def test_keys_of_several_columns_and_partitions(kind: str, tmp_path: Path, place: Path) -> None:
    cells = [Cell(n % 300, "ab"[n % 2], n) for n in range(1000)]
    sink = make_sink(kind, str(place), mode="upsert", key=("row", "column"), partition_by=("column",))
    sunk(tmp_path / "root", cells, Cell, sink, 400)
    last = {(c.row, c.column): c.value for c in cells}
    assert {(c["row"], c["column"]): c["value"] for c in read(kind, place)} == last
    assert len(read(kind, place)) == len(last)


def test_a_key_that_is_missing_is_said(kind: str, tmp_path: Path, place: Path) -> None:
    sink = make_sink(kind, str(place), mode="upsert", key=("nr",))
    with pytest.raises(ConfigError, match=r"table .*: the elements have no key column 'nr'; their columns are id, name, tags"):
        sunk(tmp_path / "root", [User(1, "ann")], User, sink)


class Measured(NamedTuple):
    at: float
    part: int
    text: str


@pytest.mark.parametrize("key", [("at",), ("at", "part")])
def test_nan_is_a_key_like_others(kind: str, tmp_path: Path, place: Path, key: tuple[str, ...]) -> None:
    sink = make_sink(kind, str(place), mode="upsert", key=key)
    for text in ("old", "new"):
        rows = [Measured(float("nan"), 1, text), Measured(0.5, 1, text)]
        sunk(tmp_path / text, rows, Measured, sink)
    assert [row["text"] for row in read(kind, place)] == ["new", "new"]
    sunk(tmp_path / "last", [Measured(float("nan"), 1, "last")], Measured, sink)
    assert sorted(row["text"] for row in read(kind, place)) == ["last", "new"]
