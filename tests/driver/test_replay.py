"""Runs that stop by themselves: at a time, or where a savepoint was taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jobs import saved_state

import forkpoint as fp
from example_counts import examples
from forkpoint.api.launch import Launch
from forkpoint.connectors.collection import CollectionSource
from forkpoint.driver.start.replay import Until, UntilPositions, UntilTime
from forkpoint.errors import ConfigError
from forkpoint.graph.options import RestoreOptions
from forkpoint.savepoint.format.opened_savepoint import open_savepoint

ROOTS = iter(range(10**9))


def count(element: Any, state: int | None) -> tuple[Any, int]:
    return element, (state or 0) + 1


def run(
    root: Path,
    sources: dict[str, Any],
    until: Until | None,
    *,
    rows: int = 7,
    bound_ms: int = 0,
    savepoint: str | None = None,
    parallelism: int = 2,
    name: str = "job",
    assign: bool = False,
) -> str | None:
    """Count the elements (name, ms) of each source by name; the savepoint with which the run stopped, if it did."""
    env = fp.StreamExecutionEnvironment.get_execution_environment().set_state_root(str(root))
    env.set_parallelism(parallelism).set_max_epoch_rows(rows)
    strategy = fp.WatermarkStrategy.for_bounded_out_of_orderness(bound_ms).with_timestamp_assigner(lambda e, _: e[1])
    for uid, source in sources.items():
        plain = fp.WatermarkStrategy.no_watermarks() if assign else strategy
        stream = env.from_source(source, plain, uid).uid(uid)
        if assign:
            stream = stream.map(lambda e: e, tuple[str, int]).assign_timestamps_and_watermarks(strategy).uid(f"{uid}-time")
        keyed = stream.key_by(lambda e: e[0], str).map_with_state(count, int).uid(f"{uid}-counts")
        keyed.sink_to(fp.DiscardSink()).uid(f"{uid}-out")
    launch = Launch(options={"engine": "local"}, until=until, job_name=name, restore=RestoreOptions(savepoint or "none"))
    env.launch = launch
    return env.execute("job").savepoint


def source(times: list[int]) -> CollectionSource:
    return CollectionSource([(f"k{i % 3}", t) for i, t in enumerate(times)], tuple[str, int])


def read(savepoint: str | None) -> dict[str, int]:
    """How many elements each source has given, as its position and its counts agree."""
    assert savepoint is not None
    saved = open_savepoint(savepoint).savepoint
    found = {uid: p.position["0"] for uid, p in saved.sources.items() if p.kind == "native"}
    for uid, number in found.items():
        place = savepoint.removeprefix("file://")
        assert sum(saved_state(Path(place), f"{uid}-counts", "state").values()) == number
    return found


def passes(times: list[int], bound_ms: int, until_ms: int) -> int | None:
    """How many elements it takes until the watermark is there."""
    newest = None
    for number, time in enumerate(times, start=1):
        newest = time if newest is None else max(newest, time)
        if newest - bound_ms - 1 >= until_ms:
            return number
    return None


@examples(25)
@given(
    a=st.lists(st.integers(0, 60), min_size=1, max_size=40),
    b=st.lists(st.integers(0, 60), min_size=1, max_size=40),
    bound_ms=st.integers(0, 5),
    until_ms=st.integers(0, 50),
    rows=st.sampled_from([1, 2, 7, 100]),
    assign=st.booleans(),
)
def test_each_source_is_read_up_to_the_element_that_takes_its_watermark_to_the_time(
    tmp_path_factory: pytest.TempPathFactory,
    a: list[int],
    b: list[int],
    bound_ms: int,
    until_ms: int,
    rows: int,
    assign: bool,
) -> None:
    root = tmp_path_factory.getbasetemp() / f"replay-{next(ROOTS)}"
    sources = {"a": source([*a, 1000]), "b": source([*b, 1000])}
    expected = {uid: passes([*times, 1000], bound_ms, until_ms) for uid, times in (("a", a), ("b", b))}
    savepoint = run(root, sources, UntilTime(until_ms, "then"), rows=rows, bound_ms=bound_ms, assign=assign)
    if expected == {"a": len(a) + 1, "b": len(b) + 1}:
        assert savepoint is None  # both inputs came to their end with it, which ends the job as it always does
    else:
        assert read(savepoint) == expected


def test_a_time_that_the_inputs_do_not_come_to_ends_with_them(tmp_path: Path) -> None:
    assert run(tmp_path, {"a": source(list(range(30)))}, UntilTime(10**6, "then")) is None


def test_a_time_that_is_over_stops_at_once(tmp_path: Path) -> None:
    sources = {"a": source(list(range(50)))}
    first = run(tmp_path, sources, UntilTime(20, "then"))
    assert read(first) == {"a": 22}
    assert read(run(tmp_path, sources, UntilTime(15, "before"), savepoint=first, name="fork")) == {"a": 22}
    assert read(run(tmp_path, sources, UntilTime(30, "later"), savepoint=first, name="fork2")) == {"a": 32}


@pytest.mark.parametrize("rows", [1, 3, 100])
def test_exactly_to_where_a_savepoint_was_taken(tmp_path: Path, rows: int) -> None:
    split = CollectionSource(splits=[[(f"k{i}", i) for i in range(n)] for n in (9, 30, 0, 17)], type=tuple[str, int])
    sources = {"a": source(list(range(50))), "b": split, "c": fp.CollectionSource([("x", 1)] * 4, tuple[str, int])}
    taken = positions(tmp_path, sources)
    target = UntilPositions(taken, "there")
    replayed = run(tmp_path, sources, target, rows=rows, parallelism=3, name="replay")
    assert replayed is not None
    saved = open_savepoint(replayed).savepoint
    assert {uid: p.position for uid, p in saved.sources.items()} == {uid: p.position for uid, p in taken.items()}
    # Where b read the table that a reads now, and a read it with options.
    names = {"a": "a /*+ OPTIONS('x' = 'y') */", "b": "a"}
    moved = UntilPositions({**taken, "a": taken["b"], "b": taken["a"]}, "there", names)
    again = run(tmp_path, sources, moved, savepoint=replayed, name="again")  # there already
    assert again is not None
    assert open_savepoint(again).savepoint.sources.keys() == taken.keys()


def positions(root: Path, sources: dict[str, Any]) -> Any:
    """Positions in the middle of everything: those after four epochs."""

    class Stop:
        def on_driver(self, driver: Any) -> Any:
            self.driver, self.left = driver, 4
            return lambda _: None

        def on_step(self, step: str, epoch: int) -> None:
            self.left -= step == "published"
            if not self.left:
                self.left = -1
                self.driver.savepoint(stop=True)

    stop = Stop()
    env = fp.StreamExecutionEnvironment.get_execution_environment().set_state_root(str(root)).set_max_epoch_rows(3)
    for uid, each in sources.items():
        env.from_source(each, fp.WatermarkStrategy.no_watermarks(), uid).uid(uid).sink_to(fp.DiscardSink()).uid(f"{uid}-o")
    env.launch = Launch(options={"engine": "local"}, on_driver=stop.on_driver, steps=stop, job_name="original-run")
    savepoint = env.execute("job").savepoint
    assert savepoint is not None
    return open_savepoint(savepoint).savepoint.sources


def test_what_cannot_be_replayed_is_refused(tmp_path: Path) -> None:
    counter = fp.CounterSource(per_epoch=5)
    with pytest.raises(ConfigError, match="source 'a' is unbounded and has no position there"):
        run(tmp_path, {"a": counter}, UntilPositions({}, "there"))
    env = fp.StreamExecutionEnvironment.get_execution_environment().set_state_root(str(tmp_path))
    env.from_source(counter, fp.WatermarkStrategy.no_watermarks(), "a").uid("a").sink_to(fp.DiscardSink()).uid("out")
    env.launch = Launch(options={"engine": "local"}, until=UntilTime(5, "then"))
    with pytest.raises(ConfigError, match="source 'a' is unbounded and has no watermarks"):
        env.execute("job")
    far = run(tmp_path, {"a": source(list(range(50)))}, UntilTime(30, "then"), name="far")
    near = run(tmp_path, {"a": source(list(range(50)))}, UntilTime(10, "then"), name="near")
    assert far is not None
    assert near is not None
    target = UntilPositions(open_savepoint(near).savepoint.sources, "near")
    with pytest.raises(ConfigError, match="cannot stop at element 12 of split 0: it is at element 32 of 50"):
        run(tmp_path, {"a": source(list(range(50)))}, target, savepoint=far, name="back")
