"""Random jobs over all operators: whatever is done to a run, what comes out is the same.

``FORKPOINT_RANDOM_JOBS=200`` runs as many times the examples.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from unittest.mock import patch

from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from random_jobs import inputs, jobs, made_by, sources_of
from random_runs import build, results, run, sources

import forkpoint as fp
from example_counts import examples
from forkpoint.driver.start.program_check import check_program
from forkpoint.graph.compile import compile_graph
from forkpoint.runtime.tasks import source_task
from forkpoint.savepoint.format.opened_savepoint import open_savepoint
from forkpoint.state_processor import SavepointReader, SavepointWriter, diff
from forkpoint.testing import Abort, Eof

TIMES = int(os.environ.get("FORKPOINT_RANDOM_JOBS", "1"))
STEPS = ("planned", "computed", "written", "committed", "published")
STOP = Eof(savepoint=True)

parallelisms = st.integers(1, 4)
backends = st.sampled_from(["dict", "dict", "lmdb", "rocksdb"])
rows = st.sampled_from([1, 3, 7, 100])


def of_jobs(count):
    return examples(
        count * TIMES,
        print_blob=False,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )


@contextmanager
def a_root():
    with tempfile.TemporaryDirectory(prefix="forkpoint-random-") as root:
        yield root


def with_marks(events, *marks):
    """The events with marks at places, the same place in the order given."""
    script = list(events)
    for place, mark in sorted(marks, key=lambda m: m[0], reverse=True):
        script.insert(min(place, len(events)), mark)
    return script


def stopped_and_restored(job, events, cuts, hows, root):
    """Runs that follow each other, each but the last stopped with a savepoint; from that the next one starts."""
    script = with_marks(events, *((cut, STOP) for cut in cuts))
    runs, savepoint = [], None
    for i, how in enumerate(hows):
        found = run(job, script, state_root=root, restore=savepoint, job_name=f"job-{i // 2}", **how)
        assert found.outcome == ("stopped" if i < len(cuts) else "finished")
        runs.append(found)
        savepoint = found.savepoint
    return runs


@st.composite
def starts(draw):
    """How a run starts: parallelism, rows of an epoch, store, and sometimes another max parallelism."""
    return {
        "parallelism": draw(parallelisms),
        "epochs": draw(rows),
        "options": {"state_backend": draw(backends)},
        "max_parallelism": draw(st.sampled_from([None, None, 4, 7, 1000])),
    }


@of_jobs(8)
@given(jobs(), inputs(15), rows, parallelisms, st.sampled_from([0, 2, 5000]))
def test_cuts_and_parallelism(job, events, epochs, parallelism, together):
    """``together``: the rows of a source's ranges that are read as one."""
    straight = run(job, events, parallelism=1)
    with patch.object(source_task, "TOGETHER_ROWS", together):
        found = run(job, events, parallelism=parallelism, epochs=epochs)
    assert results(job, found) == results(job, straight)


@of_jobs(5)
@given(jobs(), inputs(15), st.lists(st.integers(0, 30), min_size=1, max_size=2), st.lists(starts(), min_size=3, max_size=3))
def test_stopped_and_restored(job, events, cuts, hows):
    straight = results(job, run(job, events, parallelism=1))
    cuts = sorted(min(cut, len(events)) for cut in cuts)
    with a_root() as root:
        assert results(job, *stopped_and_restored(job, events, cuts, hows[: len(cuts) + 1], root)) == straight


@of_jobs(5)
@given(
    jobs(),
    inputs(15),
    rows,
    st.lists(st.tuples(st.integers(0, 30), st.sampled_from(STEPS)), min_size=1, max_size=3),
    starts(),
)
def test_dies_on_the_way(job, events, epochs, deaths, how):
    straight = results(job, run(job, events, parallelism=1))
    script = with_marks(events, *((place, Abort(step)) for place, step in deaths))
    found = run(job, script, **how)
    assert found.deaths > 0
    assert results(job, found) == straight


EMPTY_AT_THE_END = ("left-buffer", "right-buffer", "waiting", "elements", "_event_timers", "sums")


@of_jobs(5)
@given(jobs(), inputs(15), starts())
def test_nothing_is_left_behind_a_drain(job, events, how):
    """Elements go round in loops whatever the watermark."""
    with a_root() as root:
        found = run(job, [*events, Eof(savepoint=True, drain=True)], state_root=root, **how)
        left = {(s.uid, s.name): s.count for s in SavepointReader.read(found.savepoint).states if s.count}
    known, by_time = sources_of(job), set()
    for n, step in enumerate(job.steps, 1):
        timed = any(isinstance(a, tuple) and a[0] in ("tumbling", "sliding", "session", "dynamic") for a in step.args)
        if timed and not any(known[i].at_end for i in step.inputs):  # as in Flink, a window at the end of time stays
            by_time.add(f"step-{n}")
        known += made_by(step, known, n)
    assert not {place for place in left if place[1] in EMPTY_AT_THE_END or (place[0] in by_time and place[1] not in ("seen",))}


@of_jobs(3)
@given(jobs(), inputs(15), st.integers(0, 30), starts(), starts())
def test_a_savepoint_fits_its_program_and_survives_an_edit(job, events, cut, before, after):
    straight = results(job, run(job, events, parallelism=1))
    script = with_marks(events, (cut, STOP))
    with a_root() as root:
        first = run(job, script, state_root=root, **before)
        assert first.savepoint is not None
        plan = check_program(graph_of(job, script), open_savepoint(first.savepoint).savepoint)
        assert {row.outcome for row in plan.rows} <= {"restored", "kept"}, plan.rows  # kept: what triggers ask for
        edited = SavepointWriter.from_existing_savepoint(first.savepoint).write(f"{root}/edited")
        found = diff(first.savepoint, edited)
        assert found.same, found
        second = run(job, script, state_root=root, restore=edited.path, job_name="other", **after)
        assert results(job, first, second) == straight


def graph_of(job, script):
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    for name, stream in build(job)(env, *sources(job, script)).items():
        stream.sink_to(fp.DiscardSink()).uid(f"output:{name}")
    return compile_graph(env.transformations, max_parallelism=128, require_uids=True).graph


@of_jobs(4)
@given(jobs(), inputs(15), st.integers(0, 30), rows, rows, st.integers(1, 2), st.integers(3, 4))
def test_saved_state_does_not_depend_on_the_parallelism(job, events, cut, some, others, few, many):
    script = with_marks(events, (cut, STOP))
    with a_root() as root:
        first = run(job, script, state_root=root, epochs=some, parallelism=few)
        second = run(job, script, state_root=root, epochs=others, parallelism=many, job_name="other")
        found = diff(first.savepoint, second.savepoint)
    # What has expired may be there yet, and what goes round has gone as far as there were epochs.
    states = [s for s in found.states if s.outcome != "same" and not s.name.startswith("young")]
    assert not found.watermarks
    if not any(step.kind == "iterate" for step in job.steps):
        assert not states


@of_jobs(4)
@given(jobs(sources=2), st.data(), rows, parallelisms, st.integers(0, 30), starts())
def test_two_sources(job, data, epochs, parallelism, cut, how):
    """What depends on the watermark alone."""
    one, two = (data.draw(inputs(job.bound)) for _ in range(2))
    straight = results(job, run(job, one, two, parallelism=1))
    assert results(job, run(job, one, two, parallelism=parallelism, epochs=epochs)) == straight
    script = with_marks(one, (cut, STOP))
    with a_root() as root:
        first = run(job, script, two, state_root=root, parallelism=parallelism, epochs=epochs)
        second = run(job, script, two, state_root=root, restore=first.savepoint, job_name="other", **how)
    assert results(job, first, second) == straight
