"""What other tools see of a savepoint."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from job_state import UID, Cluster, lists

from forkpoint.checkpoint.states import StateInfo
from forkpoint.savepoint.export.exporter import export_savepoint
from forkpoint.savepoint.format.layout import layout_of
from forkpoint.savepoint.format.tasks import run_here
from forkpoint.storage.base import LocalStorage
from forkpoint.types import Types, type_of


class Site(NamedTuple):
    name: str
    port: int


@dataclass
class Visit:
    count: int
    key: str
    note: str | None = None


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the operator's states."""
    root = tmp_path_factory.mktemp("columns")
    storage = LocalStorage(str(root))
    cluster = Cluster(storage, "job", 2, 8, (type_of(Site), type_of(Visit), type_of(str)))
    home, work = Site("home", 1), Site("work", 2)
    cluster.epoch(
        {
            home: lambda s: (
                s.value.update(Visit(3, "k")),
                s.events.add_all([Visit(1, "a"), Visit(2, "b")]),
                s.table.put("x", Visit(9, "z")),
                s.total.add(5),
                s.aged.update(Visit(1, "a")),
                s.timers.event.register(70),
                s.timers.processing.register(80),
            ),
            work: lambda s: s.events.add(Visit(7, "w")),
        },
        {1: lambda state: (lists(state)[0].update(["p", "q"]), lists(state)[1].update([("part", 4)]))},
    )
    cluster.epoch({home: lambda s: s.events.add(Visit(3, "c", "later"))})
    target = LocalStorage(str(root / "s"))
    export_savepoint(storage=storage, manifest=cluster.manifest, target=target, savepoint_id="s", run_tasks=run_here)
    return root / "s" / "operators" / "counts!20by!20user"


def read(operator: Path, state: str) -> list[dict[str, Any]]:
    frame = pd.read_parquet(operator / state).drop(columns="key_group", errors="ignore")
    return frame.astype(object).where(frame.notna(), None).to_dict("records")


def test_a_record_has_a_column_for_each_field(operator: Path) -> None:
    frame = pd.read_parquet(operator / "value")
    assert list(frame.columns) == ["key_group", "key_name", "key_port", "count", "key", "note"]
    assert read(operator, "value") == [{"key_name": "home", "key_port": 1, "count": 3, "key": "k", "note": None}]


def test_plain_values_and_stamps(operator: Path) -> None:
    assert read(operator, "total") == [{"key_name": "home", "key_port": 1, "value": 5}]
    assert read(operator, "aged")[0]["ttl_stamp"] == 1001


def test_a_list_has_a_row_for_each_element(operator: Path) -> None:
    rows = sorted((row["key_name"], row["index"], row["count"], row["note"]) for row in read(operator, "events"))
    assert rows == [("home", 0, 1, None), ("home", 1, 2, None), ("home", 2, 3, "later"), ("work", 0, 7, None)]


def test_a_map_has_a_row_for_each_entry(operator: Path) -> None:
    (row,) = read(operator, "table")
    assert (row["map_key"], row["count"]) == ("x", 9)


def test_timers_of_both_domains_are_read_together(operator: Path) -> None:
    rows = sorted((row["domain"], row["timestamp"], row["key_name"]) for row in read(operator, "_timers"))
    assert rows == [("event", 70, "home"), ("processing", 80, "home")]


def test_operator_state(operator: Path) -> None:
    assert read(operator, "buffer") == [
        {"subtask": 1, "index": 0, "value": "p"},
        {"subtask": 1, "index": 1, "value": "q"},
    ]
    assert read(operator, "offsets") == [{"subtask": 1, "index": 0, "f0": "part", "f1": 4}]


def test_an_empty_state_has_its_columns(operator: Path) -> None:
    assert pd.read_parquet(operator / "aged!2ftable").empty
    assert list(pd.read_parquet(operator / "mean").columns) == ["key_group", "key_name", "key_port", "f0", "f1"]


def test_files_say_what_they_hold(operator: Path) -> None:
    described = json.loads(pq.read_schema(operator / "value" / "part-0.parquet").metadata[b"forkpoint"])
    assert (described["uid"], described["name"], described["kind"]) == (UID, "value", "value")
    assert described["columns"]["value"] == ["count", "key", "note"]
    assert described["value_type"]["name"] == "Visit"


def test_the_seal_is_what_sha256sum_checks(operator: Path) -> None:
    root = operator.parent.parent
    digest, name = (root / "savepoint.json.sha256").read_text().split()
    assert hashlib.sha256((root / name).read_bytes()).hexdigest() == digest


def test_positions_are_there_to_be_looked_at(operator: Path) -> None:
    sources = operator.parent.parent / "sources" / "in"
    assert json.loads((sources / "position.json").read_text())["position"] == {"row": 3}
    assert (sources / "log-0").read_text() == "v1\n{}"


def columns(**spec: Any) -> list[str]:
    described = {k: v.describe() if hasattr(v, "describe") else v for k, v in spec.items()}
    return list(layout_of(StateInfo(sid=1, uid="u", name="s", **described)).schema.names)


def test_names_that_are_taken_get_a_prefix() -> None:
    awkward = Types.ROW_NAMED(["key", "KEY_GROUP", "value_key"], [Types.INT()] * 3)
    found = columns(kind="value", key_type=Types.INT(), value_type=awkward)
    assert found == ["key_group", "key", "value_key", "value_KEY_GROUP", "value_value_key"]
    assert len({name.lower() for name in found}) == len(found)


def test_windows_are_flat_too() -> None:
    window = Types.ROW_NAMED(["start", "end"], [Types.LONG(), Types.LONG()])
    found = columns(kind="aggregating", key_type=Types.STRING(), value_type=Types.INT(), namespace_type=window)
    assert found == ["key_group", "key", "namespace_start", "namespace_end", "value"]


def test_any_is_msgpack() -> None:
    schema = layout_of(StateInfo.of("u", "s", "value", Types.ANY(), Types.ANY())).schema
    assert schema.field("key").type == schema.field("value").type == pa.binary()
    assert json.loads(schema.metadata[b"forkpoint"])["value_type"] == {"kind": "any"}
