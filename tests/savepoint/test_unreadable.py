"""Savepoints of jobs in which an earlier version has committed values that do not fit their types."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow.parquet as pq
import pytest

import forkpoint as fp
from forkpoint.api.launch import Launch
from forkpoint.checkpoint.savepoint_manifest import Savepoint, load_savepoint
from forkpoint.driver.run.job_driver import JobDriver
from forkpoint.graph.options import RestoreOptions
from forkpoint.storage.base import open_storage
from forkpoint.testing import Eof, TestSource, run_local

LONG_AGO = timedelta(days=99_999)


class Careless(fp.KeyedProcessFunction):
    """Writes past the guard for the key "bad", as handles did that did not check."""

    number = fp.ValueStateDescriptor("number", int, 0)
    span = fp.ValueStateDescriptor("span", timedelta, timedelta())
    items = fp.ListStateDescriptor("items", int)
    aging = fp.ListStateDescriptor("aging", str).enable_time_to_live(LONG_AGO)
    table = fp.MapStateDescriptor("table", str, int)

    def process_element(self, e: tuple[str, int], ctx: Any) -> Any:
        handles: Any = self
        if e[0] == "bad":
            handles.number.cell.write(2**63)
            handles.span.cell.write(timedelta.max)
            handles.items._entry(b"").append([1, None, 3])
            handles.aging._entry(b"").append([(text, handles.aging._expiry.stamp()) for text in ("x", 5, "z")])
            handles.table.put("fine", 1)
            handles.table._current.put(handles.table._encode("wrong"), "text")
        else:
            self.number.update(e[1])
            self.span.update(timedelta(seconds=e[1]))
            self.items.add(e[1])
            self.aging.add("y")
            self.table.put("fine", e[1])
        yield e


class Buffer(fp.ProcessFunction, fp.CheckpointedFunction):
    def initialize_state(self, context: Any) -> None:
        self.seen: Any = context.get_operator_state_store().get_list_state(fp.ListStateDescriptor("seen", int))

    def snapshot_state(self, context: Any) -> None:
        pass

    def process_element(self, e: Any, ctx: Any) -> Any:
        self.seen._kept.append("text" if e[0] == "bad" else e[1])
        yield e


def build(env: fp.StreamExecutionEnvironment, source: Any) -> fp.DataStream:
    stream = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "in").uid("in")
    buffered = stream.process(Buffer(), tuple[str, int]).uid("buffer")
    return buffered.key_by(lambda e: e[0], str).process(Careless(), tuple[str, int]).uid("careless")


class Ask:
    """Asks for savepoints behind the fourth epoch, and notes what came of each."""

    def __init__(self, *wanted: dict[str, bool]) -> None:
        self.wanted = list(wanted)
        self.asked: list[Any] = []
        self.driver: JobDriver | None = None

    def attach(self, driver: JobDriver) -> Callable[[Any], None]:
        self.driver = driver
        return lambda ended: None

    def on_step(self, step: str, epoch: int) -> None:
        if step == "published" and epoch >= 4 and self.wanted and self.driver is not None:
            self.asked.append(self.driver.savepoint(**self.wanted.pop(0)).done)


ELEMENTS = [("a", 1), ("bad", 2), ("b", 3), ("a", 4), ("c", 5), ("c", 6), ("c", 7)]


def savepoints(root: Path, *wanted: dict[str, bool]) -> list[Any]:
    env = fp.StreamExecutionEnvironment.get_execution_environment().set_state_root(str(root)).set_max_epoch_rows(1)
    build(env, fp.CollectionSource(ELEMENTS)).sink_to(fp.DiscardSink()).uid("out")
    ask = Ask(*wanted)
    env.launch = Launch(options={"engine": "local"}, steps=ask, on_driver=ask.attach)
    env.execute("careless")
    return ask.asked


def column(savepoint: Path, uid: str, state: str, name: str = "value") -> list[Any]:
    found: list[Any] = pq.read_table(savepoint / "operators" / uid / state)[name].to_pylist()
    return found


def loaded(url: str) -> tuple[Path, Savepoint]:
    return Path(urlsplit(url).path), load_savepoint(open_storage(url))


def test_what_cannot_be_read_is_named_and_left_out_only_where_told_to(tmp_path: Path) -> None:
    plain, skipping, stopped = savepoints(tmp_path, {}, {"skip_unreadable": True}, {"stop": True, "skip_unreadable": True})
    with pytest.raises(fp.SavepointCorrupt) as refused:
        plain.result()
    message = str(refused.value)
    for part in (
        "operator 'careless', state 'number', key 'bad'",
        "operator 'careless', state 'span', key 'bad'",
        "operator 'careless', state 'items', key 'bad', element 1 of",
        "operator 'careless', state 'aging', key 'bad', element 1 of",
        "operator 'careless', state 'table', key 'bad', map key 'wrong'",
        "operator 'buffer', state 'seen', subtask",
        "6 entries",
        "--skip-unreadable",
    ):
        assert part in message
    for url in (skipping.result(), stopped.result()):
        path, savepoint = loaded(url)
        assert {(s.uid, s.state): s.entries for s in savepoint.left_out} == {
            ("careless", "number"): 1,
            ("careless", "span"): 1,
            ("careless", "items"): 1,
            ("careless", "aging"): 1,
            ("careless", "table"): 1,
            ("buffer", "seen"): 1,
        }
        assert "bad" not in column(path, "careless", "number", "key")
        assert sorted(column(path, "careless", "items"))[:3] == [1, 1, 3]
        assert {"x", "z"} < set(column(path, "careless", "aging"))
        assert "bad" in column(path, "careless", "table", "key")
        assert 2 not in column(path, "buffer", "seen")


def test_a_stop_that_is_refused_lets_the_job_go_on(tmp_path: Path) -> None:
    refused, stopped = savepoints(tmp_path, {"stop": True}, {"stop": True, "skip_unreadable": True})
    with pytest.raises(fp.SavepointCorrupt, match="no savepoint was made"):
        refused.result()
    assert loaded(stopped.result())[1].left_out


def test_a_savepoint_without_the_unreadable_can_be_restored(tmp_path: Path) -> None:
    (stopped,) = savepoints(tmp_path / "one", {"stop": True, "skip_unreadable": True})

    class Read(Careless):
        def process_element(self, e: tuple[str, int], ctx: Any) -> Any:
            yield e[0], self.number.value(), list(self.items.get()), list(self.aging.get()), dict(self.table.items())

    def again(env: fp.StreamExecutionEnvironment, source: Any) -> fp.DataStream:
        stream = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "other").uid("other")
        return stream.key_by(lambda e: e[0], str).process(Read()).uid("careless")

    options = RestoreOptions(savepoint=stopped.result(), allow_non_restored=True)
    found = run_local(again, TestSource([("bad", 0), ("a", 0)]), state_root=tmp_path / "two", restore=options)
    assert {row[0]: row[1:] for row in found.output} == {
        "bad": (0, [1, 3], ["x", "z"], {"fine": 1}),
        "a": (1, [1], ["y"], {"fine": 1}),
    }


@pytest.mark.parametrize("name", ["я" * 38, "x" * 250, "ж" * 300])
def test_names_of_any_length_can_be_saved_and_restored(tmp_path: Path, name: str) -> None:
    class Long(fp.KeyedProcessFunction):
        mine = fp.ListStateDescriptor(name, int)

        def process_element(self, e: tuple[str, int], ctx: Any) -> Any:
            self.mine.add(e[1])
            yield list(self.mine.get())

    def job(env: fp.StreamExecutionEnvironment, source: Any) -> fp.DataStream:
        stream = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "in").uid(name + "in")
        return stream.key_by(lambda e: e[0], str).process(Long()).uid(name)

    script = [("a", 1), Eof(savepoint=True), ("a", 2)]
    one = run_local(job, TestSource(script), state_root=tmp_path / "one")
    assert one.savepoint is not None
    two = run_local(job, TestSource(script), state_root=tmp_path / "two", restore=one.savepoint)
    assert two.output == [[1, 2]]
