"""Elements that are on their way at a stop, a failure or a kill are neither lost nor doubled."""

from __future__ import annotations

import ast
import signal
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import loop_jobs
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from loop_jobs import NUMBERS, collatz, collatz_lengths, components, least_connected, source_of
from test_iterations import decrement, hashes

import forkpoint as fp
from example_counts import examples
from forkpoint.errors import RestoreRefused
from forkpoint.graph.options import RestoreOptions
from forkpoint.testing import PAUSE, Abort, Eof, TestSource, run_local
from programs import run_python

STEPS = ("planned", "computed", "written", "committed", "published")
with_files = examples(3, suppress_health_check=[HealthCheck.function_scoped_fixture])


def halves(build, elements, place, root, *, before, after, epochs=4, **more):
    """Both runs of a job that is stopped in the middle and restored at another parallelism."""
    script = [*elements[:place], Eof(savepoint=True, **more), *elements[place:]]
    first = run_local(build, script, parallelism=before, state_root=root, epochs=epochs)
    assert first.outcome == "stopped"
    return first, run_local(build, script, parallelism=after, state_root=root, restore=first.savepoint, epochs=epochs)


@with_files
@given(st.lists(st.integers(1, 25), max_size=15), st.integers(0, 15), st.integers(1, 4), st.integers(1, 4), st.booleans())
def test_stopped_and_restored_at_another_parallelism(tmp_path_factory, numbers, place, before, after, drain):
    runs = halves(
        source_of(collatz, int),
        numbers,
        place,
        tmp_path_factory.mktemp("root"),
        before=before,
        after=after,
        drain=drain,
    )
    assert sorted(runs[0].output + runs[1].output) == collatz_lengths(numbers)


@with_files
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=15),
    st.integers(0, 15),
    st.integers(1, 4),
    st.integers(1, 4),
)
def test_keyed_state_in_the_body(tmp_path_factory, edges, place, before, after):
    root = tmp_path_factory.mktemp("root")
    runs = halves(source_of(components), edges, place, root, before=before, after=after)
    last = {}
    for run in runs:
        last.update({node: values[-1][1] for node, values in run.by_key(lambda v: v[0]).items()})
    assert last == least_connected(edges)


@with_files
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4), st.integers(0, 99)), max_size=15), st.integers(0, 15))
def test_the_order_within_keys_is_that_of_a_run_straight_through(tmp_path_factory, elements, place):
    straight = run_local(source_of(hashes), [*elements[:place], PAUSE, *elements[place:]], parallelism=2, epochs=4).by_key(
        lambda v: v[0]
    )
    runs = halves(source_of(hashes), elements, place, tmp_path_factory.mktemp("root"), before=3, after=1)
    found = {}
    for run in runs:
        for key, values in run.by_key(lambda v: v[0]).items():
            found.setdefault(key, []).extend(values)
    assert found == straight


@pytest.mark.parametrize("step", STEPS)
def test_a_process_that_dies_in_mid_loop(tmp_path, step):
    script = [7, 15, Abort(step), 9, PAUSE, Abort(step), 6, PAUSE, Abort(step)]
    run = run_local(source_of(collatz, int), script, state_root=tmp_path, epochs=1, parallelism=3)
    assert run.deaths == 3
    assert sorted(run.output) == collatz_lengths([7, 15, 9, 6])


class FailsOnce(fp.MapFunction):
    """Fails when it sees the value for the first time."""

    failed = False

    def map(self, value):
        if value == 3 and not FailsOnce.failed:
            FailsOnce.failed = True
            raise ValueError("three")
        return value - 1


def test_a_restart_after_a_failure_in_mid_loop():
    FailsOnce.failed = False

    def build(stream):
        loop = stream.iterate().uid("loop")
        less = loop.map(FailsOnce(), int)
        loop.close_with(less.filter(lambda n: n > 0))
        return less.filter(lambda n: n <= 0)

    restart = fp.RestartStrategy.fixed_delay(1, 1)
    run = run_local(source_of(build, int), [6, 2], epochs=1, options={"restart": restart})
    assert run.restarts == 1
    assert run.output == [0, 0]


def test_a_savepoint_shows_what_is_on_its_way(tmp_path):
    script = [5, 6, Eof(savepoint=True)]
    run = run_local(source_of(decrement, int), script, state_root=tmp_path, epochs=100, parallelism=2)
    directory = Path(run.savepoint.removeprefix("file://")) / "operators" / "loop" / "in-flight"
    table = pq.read_table(directory)
    assert sorted(table.column("element").to_pylist()) == [4, 5]
    assert table.column("timestamp").to_pylist() == [None, None]


def without_loop(stream):
    return stream.map(lambda n: n, int)


def test_leaving_an_iteration_out_loses_nothing_silently(tmp_path):
    script = [5, 6, Eof(savepoint=True), 7]
    first = run_local(source_of(decrement, int), script, state_root=tmp_path)
    with pytest.raises(RestoreRefused, match="in-flight"):
        run_local(source_of(without_loop, int), script, state_root=tmp_path, restore=first.savepoint)
    allowed = RestoreOptions(savepoint=first.savepoint, allow_non_restored=True)
    assert run_local(source_of(without_loop, int), script, state_root=tmp_path, restore=allowed).output == [7]


class Before(NamedTuple):
    left: int


class After(NamedTuple):
    left: int
    seen: int = 10


def stepping(record):
    def build(stream):
        loop = stream.map(lambda n: record(n), record).iterate().uid("loop")
        loop.close_with(loop.filter(lambda r: r.left > 0).map(lambda r: r._replace(left=r.left - 1), record))
        return loop.filter(lambda r: r.left == 0)

    return source_of(build, int)


def test_the_type_of_elements_evolves(tmp_path):
    script = [2, 3, Eof(savepoint=True)]
    first = run_local(stepping(Before), script, state_root=tmp_path)
    second = run_local(stepping(After), script, state_root=tmp_path, restore=first.savepoint)
    assert (first.output, second.output) == ([], [After(0, 10), After(0, 10)])


def test_what_goes_round_changes_its_place_with_the_parallelism(tmp_path):
    """More subtasks than elements, then fewer; nothing stays behind in a store that is used again."""
    script = TestSource([9, 8, 7, Eof(savepoint=True), 6, Eof(savepoint=True), 5], type=int)
    runs, savepoint = [], None
    for parallelism in (4, 1, 3):
        runs.append(run_local(source_of(decrement), script, parallelism=parallelism, state_root=tmp_path, restore=savepoint))
        savepoint = runs[-1].savepoint
    assert [r.outcome for r in runs] == ["stopped", "stopped", "finished"]
    assert [n for r in runs for n in r.output] == [0] * 5


def start(directory, *arguments):
    return run_python([loop_jobs.__file__, directory, *arguments], capture_output=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "times", "parallelism"),
    [("planned", 7, 2), ("computed", 3, 3), ("written", 9, 1), ("committed", 2, 2), ("published", 12, 4)],
)
def test_a_killed_process_is_started_again(tmp_path, step, times, parallelism):
    """With 15 numbers in 4 epochs and 17 rounds for the longest: some kills are when nothing is read any more."""
    killed = start(tmp_path, step, times, 2)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    ended = start(tmp_path, "never", 1, parallelism)
    assert ended.returncode == 0, ended.stderr.decode()
    files = [p for p in (tmp_path / "output").rglob("*") if p.is_file() and not p.name.startswith(".")]
    found = Counter(ast.literal_eval(line) for p in files for line in p.read_text().splitlines())
    assert found == Counter(collatz_lengths(NUMBERS))
