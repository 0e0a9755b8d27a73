"""Sinks that bring results to people: print, collect, discard."""

from __future__ import annotations

from typing import Any, NamedTuple

import cloudpickle
import pytest
from connector_reading import Elements, json_round_trip

from forkpoint.connectors.sinks import CollectSink, DiscardSink, PrintSink
from forkpoint.contract.sink import Sink, SinkContext
from forkpoint.types import type_of


class Reading(NamedTuple):
    room: int
    level: float


def staged(sink: Sink, epoch: int, subtasks: list[list[Any]], type: Any = None) -> list[Any]:
    """The committables of an epoch, from tasks that got the sink by cloudpickle."""
    out: list[Any] = []
    for subtask, values in enumerate(subtasks):
        shipped: Sink = cloudpickle.loads(cloudpickle.dumps(sink))
        writer = shipped.create_writer(SinkContext("out", "job", epoch, subtask, f"{subtask}.0"))
        writer.write(Elements(values, type=None if type is None else type_of(type)))
        out += writer.prepare_commit()
    return json_round_trip(out)  # type: ignore[no-any-return]


def test_print_prints_at_the_commit_and_once(capsys: pytest.CaptureFixture[str]) -> None:
    sink = PrintSink("rooms")
    committables = staged(sink, 1, [[("a", 1), "x\ny"], [], [None]])
    assert capsys.readouterr().out == ""
    sink.commit(committables, 1)
    sink.commit(committables, 1)
    assert capsys.readouterr().out == "rooms> ('a', 1)\nrooms> 'x\\ny'\nrooms> None\n"
    sink.commit(staged(PrintSink(), 2, [[1]]), 2)
    assert capsys.readouterr().out == "1\n"


def test_print_prints_the_same_epoch_of_another_run(capsys: pytest.CaptureFixture[str]) -> None:
    sink = PrintSink()
    sink.commit(staged(sink, 1, [[1]]), 1)
    sink.cleanup("out", "job", 1)
    sink.commit(staged(sink, 1, [[2]]), 1)
    assert capsys.readouterr().out == "1\n2\n"


@pytest.mark.parametrize("declared", [None, Reading])
@pytest.mark.parametrize("stream", [None, Reading])
def test_collect_brings_elements_once_and_in_order(declared: Any, stream: Any) -> None:
    sink = CollectSink(declared)
    values = [Reading(1, 0.5), Reading(2, 1.5)]
    committables = staged(sink, 7, [values, [], [Reading(3, 2.5)]], stream)
    assert sink.take() == []
    sink.commit(committables, 7)
    sink.commit(committables, 7)
    assert sink.take() == [*values, Reading(3, 2.5)]
    assert sink.take() == []
    sink.commit(staged(sink, 8, [[Reading(4, 1.0)]], stream), 8)
    assert sink.take() == [Reading(4, 1.0)]


def test_collect_brings_elements_once_though_the_run_restarts() -> None:
    sink = CollectSink().for_job("job")
    committables = staged(sink, 7, [[1]])
    sink.cleanup("out", "job", 1)
    for _ in range(3):  # each restart repeats the last commit, and cleans up
        sink.commit(committables, 7)
        sink.cleanup("out", "job", 1)
    assert sink.take() == [1]
    sink.for_job("another").cleanup("out", "another", 1)
    sink.commit(committables, 7)
    assert sink.take() == [1]


def test_collect_without_a_type_keeps_python_values() -> None:
    sink = CollectSink()
    values = [1, "a", None, (1, [2]), {"k": {1, 2}}, 2**80, b"x"]
    sink.commit(staged(sink, 1, [values]), 1)
    assert sink.take() == values


def test_collected_elements_do_not_travel_to_tasks() -> None:
    sink = CollectSink()
    sink.commit(staged(sink, 1, [["x" * 1000]]), 1)
    assert b"xxx" not in cloudpickle.dumps(sink)
    assert sink.take() == ["x" * 1000]


def test_discard_does_not_decode() -> None:
    type = type_of(Reading)
    batch = Elements(table=None, type=type)
    writer = DiscardSink().create_writer(SinkContext("out", "job", 1, 0, "0.0"))
    writer.write(batch)
    assert writer.prepare_commit() == []
    assert not batch.decoded
