"""run_upgrade: a savepoint of one version, restored by the next."""

from typing import NamedTuple

import pytest

import forkpoint as fp
from forkpoint.testing import ABORT, PAUSE, run_upgrade

NO_WATERMARKS = fp.WatermarkStrategy.no_watermarks()


class Total(NamedTuple):
    key: int
    total: int


class WithCount(NamedTuple):
    key: int
    total: int
    count: int = 0


def sums(uid="sums"):
    def job(env, source):
        numbers = env.from_source(source, NO_WATERMARKS, "numbers", int).uid("numbers")
        return numbers.key_by(lambda n: n % 2, int).reduce(lambda a, b: a + b).uid(uid)

    return job


def totals(record, type_of_total):
    def count(number, state):
        state = state or type_of_total(number % 2, 0)
        state = state._replace(total=state.total + number)
        return state, state

    def job(env, source):
        numbers = env.from_source(source, NO_WATERMARKS, "numbers", int).uid("numbers")
        return numbers.key_by(lambda n: n % 2, int).map_with_state(count, type_of_total).uid("totals")

    return job


def test_the_new_version_goes_on_with_the_state_of_the_old_one():
    done = run_upgrade(sums(), sums(), ([1, 2, 3], [4, 5]))
    assert sorted(done.before.output) == [1, 2, 4]
    assert sorted(done.after.output) == [6, 9]
    assert sorted(done.output) == sorted(done.undisturbed.output)
    assert done.outputs == {"output": done.output}
    assert done.before.savepoint is not None


def test_at_another_parallelism_and_through_deaths():
    done = run_upgrade(sums(), sums(), (range(50), [*range(50, 70), ABORT, *range(70, 100)]), parallelism=3, new_parallelism=1)
    assert done.after.deaths == 1
    assert sorted(done.output) == sorted(done.undisturbed.output)


def test_a_program_that_does_not_fit_is_refused_and_said_why():
    with pytest.raises(fp.RestoreRefused, match="sums"):
        run_upgrade(sums(), sums("totals"), ([1, 2, 3], [4, 5]))
    renamed = run_upgrade(sums(), sums("totals"), ([1, 2, 3], [4, 5]), renames={"sums": "totals"})
    assert sorted(renamed.after.output) == [6, 9]
    dropped = run_upgrade(sums(), sums("totals"), ([1, 2, 3], [4, 5]), allow_non_restored=True)
    assert sorted(dropped.after.output) == [4, 5]
    assert sorted(dropped.output) != sorted(dropped.undisturbed.output)


def test_several_sources_and_a_state_root(tmp_path):
    def job(env, first, second):
        one = env.from_source(first, NO_WATERMARKS, "first", int).uid("first")
        other = env.from_source(second, NO_WATERMARKS, "second", int).uid("second")
        return {"sums": one.union(other).key_by(lambda n: 0, int).reduce(lambda a, b: a + b).uid("sums")}

    done = run_upgrade(job, job, ([1], [2]), ([10], [20]), state_root=tmp_path)
    assert max(done.outputs["sums"]) == 33
    assert len(list((tmp_path / "savepoints" / "test").iterdir())) == 1


@pytest.mark.parametrize("epochs", [None, 1, [2]])
def test_the_old_version_reads_all_of_its_inputs(epochs):
    """Also if one of them takes more epochs than the others."""

    def job(env, one, other):
        streams = (env.from_source(s, fp.WatermarkStrategy.no_watermarks(), n).uid(n) for n, s in (("a", one), ("b", other)))
        first, second = streams
        return first.union(second)

    run = run_upgrade(job, job, ([1, 2, PAUSE, 3], [4, 5]), ([10], [20, 30, 40]), epochs=epochs)
    assert sorted(run.before.output) == [1, 2, 3, 10]
    assert sorted(run.after.output) == [4, 5, 20, 30, 40]
