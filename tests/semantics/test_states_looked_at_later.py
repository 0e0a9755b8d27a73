"""Values that are other than their type says, in a state of which all values were exact until then: the epoch is done again."""

from __future__ import annotations

from typing import Any

import pytest

import forkpoint as fp
from forkpoint.runtime.operators.emission import Collector
from forkpoint.runtime.tasks.worker import Worker
from forkpoint.testing import TestSource, run_local

STATE = tuple[float, int]


class Sum(fp.KeyedProcessFunction):
    """The state's first part is an int wherever the element's is."""

    sums = fp.ValueStateDescriptor("sums", STATE)

    def process_element(self, e: tuple[str, Any], ctx: Any) -> Any:
        total, count = self.sums.value() or (0.0, 0)
        self.sums.update((e[1] if isinstance(e[1], int) else total + e[1], count + 1))
        yield repr(self.sums.value())


@pytest.fixture
def moving_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every epoch's tasks run in processes that have seen none of the operators yet."""
    instance = Worker.instance

    def anew(self: Worker, operator: Any, subtask: int, context: Any, attempt: str) -> Any:
        kept = self.instances.get((operator.id, subtask))
        if kept is not None and (kept.epoch, kept.attempt) != (context.epoch, attempt):
            del self.instances[operator.id, subtask]
            kept.instance.close()
        return instance(self, operator, subtask, context, attempt)

    monkeypatch.setattr(Worker, "instance", anew)


def of_process(keyed: fp.KeyedStream) -> fp.DataStream:
    return keyed.process(Sum(), str)


def of_map_with_state(keyed: fp.KeyedStream) -> fp.DataStream:
    def step(e: tuple[str, Any], state: tuple[float, int] | None) -> tuple[str, tuple[float, int]]:
        total, count = state or (0.0, 0)
        return repr(state), (e[1] if isinstance(e[1], int) else total + e[1], count + 1)

    return keyed.map_with_state(step, STATE, str)


# In epochs of 4: all exact; all exact; a key's last state isn't; a state in between isn't.
ELEMENTS = [("a", 0.5)] * 8 + [("a", 0.5), ("b", 1), ("a", 2), ("b", 0.5)] + [("a", 3), ("a", 0.5), ("b", 7), ("b", 0.25)]


@pytest.mark.parametrize("build", [of_process, of_map_with_state])
@pytest.mark.parametrize("epochs", [1, 4, 100])
@pytest.mark.usefixtures("moving_tasks")
def test_results_are_the_same_where_tasks_move(build: Any, epochs: int) -> None:
    test_results_are_those_of_one_element_an_epoch(build, epochs)


@pytest.mark.parametrize("build", [of_process, of_map_with_state])
@pytest.mark.usefixtures("moving_tasks")
def test_what_the_first_epoch_showed_holds_for_tasks_that_move(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    take = Collector.take
    monkeypatch.setattr(Collector, "take", lambda self, value: taken.append(value) or take(self, value))

    def job(env: Any, source: Any) -> Any:
        stream = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "in").uid("in")
        return build(stream.key_by(lambda e: e[0], str)).uid("sums")

    run_local(job, TestSource([("a", 0.5)] * 40), epochs=4, parallelism=1)
    assert len(taken) == 4


@pytest.mark.parametrize("build", [of_process, of_map_with_state])
@pytest.mark.parametrize("epochs", [1, 4, 100])
def test_results_are_those_of_one_element_an_epoch(build: Any, epochs: int) -> None:
    def job(env: Any, source: Any) -> Any:
        stream = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "in").uid("in")
        return build(stream.key_by(lambda e: e[0], str)).uid("sums")

    outputs = [run_local(job, TestSource(ELEMENTS), epochs=cut, parallelism=1).by_key(lambda text: text) for cut in (1, epochs)]
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize("build", [of_process, of_map_with_state])
def test_what_does_not_fit_is_refused_in_any_epoch(build: Any) -> None:
    def job(env: Any, source: Any) -> Any:
        stream = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "in").uid("in")
        return build(stream.key_by(lambda e: e[0], str)).uid("sums")

    elements = [("a", 0.5)] * 8 + [("b", 10**400)]
    with pytest.raises(fp.TypeNotSupported, match=r"operator 'sums', state '\w+': .* of key 'b'"):
        run_local(job, TestSource(elements), epochs=4)
