"""A job that is rescaled while it runs gives what it gives undisturbed, with every kind of state."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_jobs import inputs, jobs
from random_runs import results, run
from test_broadcast import names_seen
from test_operator_state import NO_WATERMARKS, Buffer, Known
from test_random_jobs import STEPS, backends, examples, parallelisms, rows, with_marks
from test_stop_and_restore import event, job, joined

from forkpoint.errors import ConfigError
from forkpoint.state_processor import SavepointReader
from forkpoint.testing import ABORT, PAUSE, Abort, Eof, Rescale, run_local

rescales = st.lists(st.tuples(st.integers(0, 15), parallelisms.map(Rescale)), min_size=1, max_size=3)


@examples(7)
@given(jobs(), inputs(15), rows, parallelisms, backends, rescales)
def test_random_jobs(job, events, epochs, parallelism, backend, marks):
    straight = results(job, run(job, events, parallelism=1))
    script = with_marks([*events, PAUSE], *marks)
    found = run(job, script, parallelism=parallelism, epochs=epochs, options={"state_backend": backend})
    assert results(job, found) == straight


@examples(5)
@given(
    jobs(),
    inputs(15),
    rows,
    rescales,
    st.lists(st.tuples(st.integers(0, 15), st.sampled_from(STEPS)), min_size=1, max_size=2),
)
def test_random_jobs_that_die_on_the_way(job, events, epochs, marks, deaths):
    straight = results(job, run(job, events, parallelism=1))
    script = with_marks([*events, PAUSE], *marks, *((place, Abort(step)) for place, step in deaths))
    found = run(job, script, epochs=epochs)
    assert found.deaths > 0
    assert results(job, found) == straight


def test_two_stages_with_timers():
    events = [event(i) for i in range(60)]
    ops = [(("register", 6), ("value", 3)), (("register", -5), ("add", 1)), (("delete", 3), ("put", 1, 2))]
    straight = joined(run_local(job(ops), events, parallelism=1))
    script = [
        *events[:10],
        Rescale(5),
        *events[10:20],
        ABORT,
        *events[20:30],
        Rescale(1),
        *events[30:40],
        Rescale(3),
        *events[40:],
    ]
    found = run_local(job(ops), script, parallelism=2, epochs=4)
    assert found.deaths == 1
    assert joined(found) == straight


def held(root, savepoint):
    """What the operators of a savepoint hold: rows of operator state by uid and state."""
    reader = SavepointReader.read(savepoint)
    return {(s.uid, s.name): s.count for s in reader.states if s.count}


def test_operator_state_is_dealt_out_and_dealt_out_again(tmp_path):
    """To fewer subtasks and to more, some of which have had other elements before."""

    def build(env, source):
        return env.from_source(source, NO_WATERMARKS, "in").uid("in").flat_map(Buffer()).uid("buffer")

    values = list(range(1, 41))
    script = [
        *values[:5],
        Rescale(1),
        *values[5:10],
        PAUSE,
        *values[10:13],
        Rescale(4),
        *values[13:15],
        PAUSE,
        *values[15:20],
        Rescale(2),
        *values[20:24],
        PAUSE,
        *values[24:30],
        Rescale(3),
        *values[30:31],
        PAUSE,
        *values[31:],
        Eof(savepoint=True),
    ]
    for size in (1, 7, 100):
        root = tmp_path / str(size)
        found = run_local(build, script, parallelism=4, epochs=size, state_root=root)
        groups = sorted(v for group in found.output for v in group)
        assert len(groups) == len(set(groups))
        rest = held(root, found.savepoint).get(("buffer", "held"), 0)
        assert len(groups) + rest == len(values)


def test_of_a_union_every_subtask_gets_everything(tmp_path):
    def build(env, source):
        return env.from_source(source, NO_WATERMARKS, "in").uid("in").map(Known()).uid("known")

    script = [*"abcde", Rescale(2), PAUSE, *"xyz"]
    assert run_local(build, script, parallelism=3).output == [
        *((v, ()) for v in "abcde"),
        *((v, ("a", "b", "c", "d", "e")) for v in "xyz"),
    ]


def test_broadcast_state_reaches_new_subtasks_and_is_saved_once(tmp_path):
    elements = [
        ("a", 0),
        ("one", 1),
        ("b", 2),
        Rescale(4),
        ("two", 3),
        PAUSE,
        ("c", 4),
        Rescale(1),
        ("three", 5),
        PAUSE,
        ("d", 6),
        Rescale(3),
        PAUSE,
        ("e", 7),
        Eof(savepoint=True),
    ]
    found = run_local(names_seen, elements, parallelism=2, state_root=tmp_path)
    assert found.output == [
        ("a", []),
        ("b", ["one"]),
        ("c", ["one", "two"]),
        ("d", ["one", "two", "three"]),
        ("e", ["one", "two", "three"]),
    ]
    assert held(tmp_path, found.savepoint) == {("names", "rules"): 3}


def test_beyond_the_max_parallelism_it_is_refused():
    def build(env, source):
        return env.from_source(source, NO_WATERMARKS, "in").uid("in").flat_map(Buffer()).uid("buffer")

    with pytest.raises(ConfigError, match="parallelism 9 is above its max parallelism of 8"):
        run_local(build, [1, Rescale(9), 2, PAUSE, 3], max_parallelism=8)
