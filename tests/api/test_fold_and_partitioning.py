"""Folding, over windows and running; and elements that are sent where a function says."""

from __future__ import annotations

import tempfile
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import forkpoint as fp
from example_counts import examples
from forkpoint.errors import GraphError, UserFunctionError
from forkpoint.testing import Eof, TestSource, run_local


class Word(NamedTuple):
    key: str
    ts: int


words = st.lists(st.builds(Word, st.sampled_from("abc"), st.integers(0, 40)), max_size=25)
STAMPS = fp.WatermarkStrategy.for_bounded_out_of_orderness(100).with_timestamp_assigner(lambda w, _: w.ts)


def longer(folded: list[int], word: Word) -> list[int]:
    folded.append(word.ts)
    return folded


def windowed(env: Any, source: Any) -> Any:
    keyed = env.from_source(source, STAMPS, "words").uid("words").key_by(lambda w: w.key)
    return keyed.window(fp.TumblingEventTimeWindows.of(10)).fold([], longer, list[int]).uid("fold")


def running(env: Any, source: Any) -> Any:
    keyed = env.from_source(source, STAMPS, "words").uid("words").key_by(lambda w: w.key)
    return keyed.fold([], longer, list[int]).uid("fold")


@examples(8)
@given(words, st.sampled_from([1, 3, 100]), st.integers(1, 3))
def test_each_window_folds_a_copy_of_the_initial_value(elements: list[Word], epochs: int, parallelism: int) -> None:
    found = run_local(windowed, TestSource(elements, type=Word), epochs=epochs, parallelism=parallelism)
    expected: dict[Any, list[int]] = {}
    for word in elements:
        expected.setdefault((word.key, word.ts // 10), []).append(word.ts)
    assert sorted(found.output) == sorted(expected.values())


@examples(6)
@given(words, st.sampled_from([1, 3, 100]), st.integers(0, 25))
def test_a_running_fold_gives_every_value_and_goes_on_from_a_savepoint(elements: list[Word], epochs: int, at: int) -> None:
    script = [*elements[:at], Eof(savepoint=True), *elements[at:]]
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        first = run_local(running, TestSource(script, type=Word), epochs=epochs, state_root=one)
        again = TestSource(script, type=Word)
        second = run_local(running, again, epochs=epochs, parallelism=3, state_root=two, restore=first.savepoint)
    expected = []
    for i, word in enumerate(elements):
        expected.append([w.ts for w in elements[: i + 1] if w.key == word.key])
    assert sorted([*first.output, *second.output]) == sorted(expected)


def test_sessions_can_not_be_folded() -> None:
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    keyed = env.from_collection([Word("a", 1)]).key_by(lambda w: w.key)
    with pytest.raises(GraphError, match=r"merge, but folded values cannot; use aggregate\(\)"):
        keyed.window(fp.EventTimeSessionWindows.with_gap(5)).fold(0, lambda a, w: a + 1)


class Where(fp.MapFunction):
    def open(self, runtime_context: Any) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()

    def map(self, value: int) -> tuple[int, int]:
        return value, self.subtask


def sent(partitioner: Any, behind: bool) -> Any:
    def build(env: Any, source: Any) -> Any:
        numbers = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
        if behind:
            numbers = numbers.rebalance().map(lambda n: n, int)
        return numbers.partition_custom(partitioner, lambda n: n * 2).map(Where())

    return build


class ByRemainder:
    def partition(self, key: int, num_partitions: int) -> int:
        return key // 2 % num_partitions


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("partitioner", [ByRemainder(), lambda key, count: key // 2 % count])
def test_elements_go_where_the_function_says(partitioner: Any, behind: bool) -> None:
    found = run_local(sent(partitioner, behind), TestSource(list(range(20)), type=int), parallelism=3)
    assert sorted(found.output) == [(n, n % 3) for n in range(20)]


def test_a_partitioner_that_is_wrong_is_told_with_its_element() -> None:
    with pytest.raises(UserFunctionError, match=r"returned 7 for element 7; there are 3 subtasks"):
        run_local(sent(lambda key, count: key // 2, False), TestSource(list(range(9))[7:], type=int), parallelism=3)
    with pytest.raises(UserFunctionError, match=r"ZeroDivisionError.*element 4"):
        run_local(sent(lambda key, count: 1 // (key - 8) * 0, False), TestSource(list(range(9)), type=int), parallelism=3)
