"""Lookup joins in Spark's workers give what they give on the local engine."""

from __future__ import annotations

import sqlite3
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from service import serving

import forkpoint as fp

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("session")]


class Person(NamedTuple):
    name: str
    age: int


def results(engine: str, database: Path, service: str) -> list[Any]:
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": engine})
    env.set_parallelism(2).set_max_epoch_rows(10)
    names = env.from_collection(["ann", "eve", "bob", "zoe"] * 10, str)
    ids = names.lookup_join(
        fp.SqlLookup(f"sqlite:///{database}", table="ids", key="name", result_type=int),
        key=lambda name: name,
        cache_ttl=timedelta(hours=1),
        on_missing="drop",
    )
    people = fp.HttpLookup(service, result_type=Person)
    joined = ids.lookup_join(people, lambda pair, person: (*pair, person and person.age), key=0)
    return sorted(joined.execute_and_collect(), key=str)


def test_a_database_and_a_service(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "ids.db") as connection:
        connection.execute("CREATE TABLE ids (name TEXT, id INTEGER)")
        connection.executemany("INSERT INTO ids VALUES (?, ?)", [("ann", 1), ("bob", 2), ("zoe", 3)])
    connection.close()
    expected = [("ann", 1, 30)] * 10 + [("bob", 2, 40)] * 10 + [("zoe", 3, None)] * 10
    with serving() as service:
        assert results("spark", tmp_path / "ids.db", service.url) == expected
        assert results("local", tmp_path / "ids.db", service.url) == expected
