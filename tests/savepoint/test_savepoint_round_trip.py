"""State that goes through a savepoint is the same state, whatever its types, its history and the parallelisms."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import tempfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pandas as pd
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from job_state import UID, Cluster, Model, States, lists

from example_counts import examples
from forkpoint.checkpoint.manifest import Parent
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.runtime.state.operator_state import OperatorState
from forkpoint.savepoint.catalog.dispose import dispose_savepoint
from forkpoint.savepoint.edit.writer import SavepointWriter
from forkpoint.savepoint.export import chain_reader, export_task, increment
from forkpoint.savepoint.export.exporter import export_savepoint
from forkpoint.savepoint.format import sorting
from forkpoint.savepoint.format.opened_savepoint import OpenedSavepoint, open_savepoint, verify_files
from forkpoint.savepoint.format.references import storage_around
from forkpoint.savepoint.format.tasks import run_here
from forkpoint.savepoint.inspect.diff import diff
from forkpoint.savepoint.inspect.reader import SavepointReader
from forkpoint.savepoint.restore import import_task
from forkpoint.savepoint.restore.compatibility import ProgramOperator
from forkpoint.savepoint.restore.importer import import_savepoint
from forkpoint.savepoint.restore.restore_plan import Saved, StateMapping, plan_restore
from forkpoint.storage.base import LocalStorage
from forkpoint.types import TypeInformation, Types, type_of


class Site(NamedTuple):
    name: str
    port: int


@dataclasses.dataclass
class Order:
    id: int
    key: str
    prices: list[float]
    note: str | None = None


numbers = st.integers(-(2**63), 2**63 - 1)
texts = st.text(max_size=6)
sites = st.builds(Site, texts, numbers)
anything = st.one_of(st.none(), numbers, texts, st.tuples(numbers, texts), st.dates(), st.lists(st.booleans(), max_size=3))
something = anything.filter(lambda value: value is not None)
orders = st.builds(Order, numbers, texts, st.lists(st.floats(allow_nan=False), max_size=3), st.one_of(st.none(), texts))

KEYS: list[tuple[TypeInformation, st.SearchStrategy[Any]]] = [
    (type_of(int), numbers),
    (type_of(str), texts),
    (type_of(Site), sites),
    (type_of(tuple[str, bytes]), st.tuples(texts, st.binary(max_size=3))),
    (type_of(float), st.floats(allow_nan=False)),
    (type_of(UUID), st.uuids()),
    (type_of(int | None), st.one_of(st.none(), numbers)),
    (Types.ANY(), st.one_of(numbers, texts, st.tuples(numbers, texts))),
]
VALUES: list[tuple[TypeInformation, st.SearchStrategy[Any]]] = [
    (type_of(int), numbers),
    (type_of(Order), orders),
    (type_of(Site), sites),
    (type_of(dict[str, int]), st.dictionaries(texts, numbers, max_size=3)),
    (type_of(Decimal), st.decimals(allow_nan=False, allow_infinity=False)),
    (type_of(tuple[Site, list[int]]), st.tuples(sites, st.lists(numbers, max_size=2))),
    (Types.ANY(), something),
]
SPACES: list[tuple[TypeInformation, st.SearchStrategy[Any]]] = [
    (type_of(str), texts),
    (type_of(Site), sites),
    (type_of(int), numbers),
]
parallelisms = st.sampled_from([1, 2, 3, 5])
max_parallelisms = st.sampled_from([5, 8, 128])

STEPS = ["value", "aged", "add", "update", "table", "remove", "total", "mean", "timer", "clear"]

Change = Callable[[States], None]


def change(draw: Any, model: Model, values: st.SearchStrategy[Any], spaces: st.SearchStrategy[Any]) -> Change:
    """Some random steps, done to the model now and to the live state later."""
    steps: list[Callable[[States], None]] = []

    def do(step: Callable[[Any], None]) -> None:
        steps.append(step)

    # The aged value is set from the start: every way to store a value is then there for every key.
    first = ["aged"] if model.aged is None else []
    for kind in first + draw(st.lists(st.sampled_from(STEPS), max_size=6)):
        value, count = draw(values), draw(st.integers(-1000, 1000))
        match kind:
            case "value":
                model.value = value
                do(lambda s, v=value: s.value.update(v))
            case "aged":
                model.aged = value
                do(lambda s, v=value: s.aged.update(v))
            case "add":
                model.events.append(value)
                model.aged_events.append(value)
                do(lambda s, v=value: (s.events.add(v), s.aged_events.add(v)))
            case "update":
                some = draw(st.lists(values, max_size=3))
                model.events = list(some)
                do(lambda s, v=some: s.events.update(v))
            case "table" | "remove":
                space = draw(spaces) if kind == "table" or not model.table else draw(st.sampled_from(list(model.table)))
                if kind == "table":
                    model.table[space] = model.aged_table[space] = value
                    do(lambda s, k=space, v=value: (s.table.put(k, v), s.aged_table.put(k, v)))
                else:
                    model.table.pop(space, None)
                    do(lambda s, k=space: s.table.remove(k))
            case "total":
                model.total = count if model.total is None else model.total + count
                do(lambda s, v=count: s.total.add(v))
            case "mean":
                old = model.mean or (0, 0)
                model.mean = (old[0] + 1, old[1] + count)
                do(lambda s, v=count: s.mean.add(v))
            case "timer":
                model.event_timers ^= {count}
                model.processing_timers |= {count}
                kept = count in model.event_timers
                do(
                    lambda s, t=count, k=kept: (
                        s.timers.event.register(t) if k else s.timers.event.delete(t),
                        s.timers.processing.register(t),
                    )
                )
            case "clear":
                model.value, model.events, model.table, model.total = None, [], {}, None
                do(lambda s: (s.value.clear(), s.events.clear(), s.table.clear(), s.total.clear()))
    return lambda states: [step(states) for step in steps] and None


def set_lists(plain: list[str], union: list[tuple[str, int]]) -> Callable[[OperatorState], None]:
    def step(state: OperatorState) -> None:
        one, other = lists(state)
        one.update(plain)
        other.update(union)

    return step


@examples(8, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_state_survives_savepoints_and_rescaling(data: st.DataObject) -> None:
    draw = data.draw
    key_type, keys = draw(st.sampled_from(KEYS))
    value_type, values = draw(st.sampled_from(VALUES))
    space_type, spaces = draw(st.sampled_from(SPACES))
    types = key_type, value_type, space_type
    models: dict[Any, Model] = {}
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        # Few entries have to do for many slices, steps and blocks.
        patch.setattr(sorting, "ENTRIES_PER_SLICE", draw(st.sampled_from([2, 10, 10**5])))
        patch.setattr(sorting, "ENTRIES_PER_PART", draw(st.sampled_from([2, 10, 10**5])))
        patch.setattr(sorting, "ENTRIES_PER_STEP", draw(st.sampled_from([1, 5, 10**5])))
        patch.setattr(chain_reader, "BLOCK_ENTRIES", draw(st.sampled_from([1, 3, 10**5])))
        root = LocalStorage(directory)
        cluster = Cluster(root, "job", draw(parallelisms), draw(max_parallelisms), types)
        patch.setattr(increment, "LEAST_BYTES", draw(st.sampled_from([0, 0, 10**9])))
        patch.setattr(increment, "LARGEST_SHARE", draw(st.sampled_from([0.5, 3, 100])))
        for generation in range(draw(st.integers(1, 2))):
            operator = run_epochs(draw, cluster, models, keys, values, spaces)
            earlier = None
            for number in range(draw(st.integers(0, 3))):  # savepoints before, to which it may refer
                earlier = saved(root, cluster, f"{generation}/{number}", earlier)
                operator = run_epochs(draw, cluster, models, keys, values, spaces)
            cluster = through_savepoint(draw, root, cluster, types, generation, earlier)
            check_keyed(cluster, models)
            check_operator_state(cluster, *operator)


def run_epochs(draw: Any, cluster: Cluster, models: dict[Any, Model], keys: Any, values: Any, spaces: Any) -> Any:
    before = [(plain, union) for plain, union in cluster.operator_lists()]
    for _ in range(draw(st.integers(0, 3))):
        # A key is found by equality and class: 0.0 and -0.0 are two keys, but one to a dict.
        touched = dict.fromkeys(draw(st.lists(keys, max_size=6)) + draw(some_of(list(models))))
        changes = {key: change(draw, models.setdefault(key, Model()), values, spaces) for key in touched if usable(key)}
        operator_changes = {}
        for subtask in draw(st.sets(st.integers(0, cluster.parallelism - 1), max_size=2)):
            before[subtask] = (draw(st.lists(texts, max_size=5)), draw(st.lists(st.tuples(texts, numbers), max_size=3)))
            operator_changes[subtask] = set_lists(*copy.deepcopy(before[subtask]))
        snapshot = draw(st.sets(st.integers(0, cluster.parallelism - 1)))
        cluster.epoch(changes, operator_changes, snapshot, inline=draw(st.booleans()))
    return [plain for plain, _ in before], [union for _, union in before]


def usable(key: Any) -> bool:
    return not (isinstance(key, float) and key == 0)


def some_of(known: list[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.sampled_from(known), max_size=4) if known else st.just([])


def saved(root: LocalStorage, cluster: Cluster, name: str, earlier: OpenedSavepoint | None) -> OpenedSavepoint:
    target = LocalStorage(f"{root.root}/elsewhere/{name}")
    savepoint = export_savepoint(
        storage=root,
        manifest=cluster.manifest,
        target=target,
        savepoint_id=name.replace("/", "-"),
        run_tasks=run_here,
        earlier=earlier,
    )
    opened = open_savepoint(*storage_around(target))
    assert opened.savepoint == savepoint == open_savepoint(target.url).savepoint
    verified = verify_files(opened)
    states = [state for operator in savepoint.operators for state in operator.states]
    assert verified.entries == sum(state.entries for state in states)
    if savepoint.format_version > 1:
        whole = full(root, cluster, f"full/{name}")
        edited = SavepointWriter.from_existing_savepoint(SavepointReader(opened)).write(f"{root.root}/edited/{name}")
        for other in (opened.url, edited.path):
            assert diff(whole, other).same
        assert edited.metadata.format_version == 1
        columns = [(s.uid, s.name, s.to_arrow().num_rows) for s in edited.states]
        assert columns == [(s.uid, s.name, s.count) for s in SavepointReader(opened).states]
    return opened


def full(root: LocalStorage, cluster: Cluster, name: str) -> str:
    """The same savepoint without references."""
    target = LocalStorage(f"{root.root}/{name}")
    savepoint = export_savepoint(storage=root, manifest=cluster.manifest, target=target, savepoint_id="full", run_tasks=run_here)
    assert savepoint.format_version == 1
    return target.url


def through_savepoint(
    draw: Any, root: LocalStorage, old: Cluster, types: Any, generation: int, earlier: OpenedSavepoint | None
) -> Cluster:
    opened = saved(root, old, f"{generation}/last", earlier)
    if earlier is not None and draw(st.booleans()):
        dispose_savepoint(earlier, runs=[], savepoints=[], force=True)
    job, parallelism = f"job {generation}", draw(parallelisms)
    max_parallelism = draw(st.one_of(st.just(old.max_parallelism), max_parallelisms))
    plan = plan_restore(Saved.of(opened.savepoint), old.manifest.states, [ProgramOperator(UID, True, complete=False)])
    epoch = draw(st.integers(1, 9))
    refs = import_savepoint(
        opened=opened,
        storage=root,
        paths=JobPaths(job),
        epoch=epoch,
        parallelism=parallelism,
        max_parallelism=max_parallelism,
        states=plan.states,
        run_tasks=run_here,
    )
    assert {ref.subtask for ref in refs} == set(range(parallelism))
    parent = Parent(kind="savepoint", savepoint_id=opened.savepoint.id)
    new = Cluster(root, job, parallelism, max_parallelism, types, epoch, parent, refs, plan.states)
    assert not [path for path in root.list(JobPaths(job).directory) if "staging" in path]
    return new


def check_keyed(cluster: Cluster, models: dict[Any, Model]) -> None:
    found = cluster.read(models)
    for key, model in models.items():
        assert found[key] == model, key


def check_operator_state(cluster: Cluster, plain: list[list[str]], union: list[list[Any]]) -> None:
    found = cluster.operator_lists()
    if len(plain) == cluster.parallelism:
        assert [one for one, _ in found] == plain
    else:
        assert [e for one, _ in found for e in one] == [e for one in plain for e in one]
        sizes = [len(one) for one, _ in found]
        assert max(sizes) - min(sizes) <= 1
    everything = [e for one in union for e in one]
    assert all(other == everything for _, other in found)


@pytest.mark.parametrize("max_parallelism", [8, 32])
def test_a_time_to_live_can_come_and_go(tmp_path: Path, max_parallelism: int) -> None:
    root = LocalStorage(str(tmp_path))
    types = type_of(int), type_of(int), type_of(str)
    old = Cluster(root, "job", 2, 8, types)
    old.epoch(
        {
            k: lambda s, k=k: (
                s.value.update(k),
                s.aged.update(-k),
                s.events.add_all([k, k + 1]),
                s.aged_events.add_all([-k]),
            )
            for k in range(1, 20)
        }
    )
    target = LocalStorage(f"{tmp_path}/s")
    export_savepoint(storage=root, manifest=old.manifest, target=target, savepoint_id="s", run_tasks=run_here)
    exchanged = {"value": "aged", "aged": "value", "events": "aged events", "aged events": "events"}
    by_name = {state.name: state for state in old.manifest.states}
    states = [StateMapping(UID, saved, by_name[name]) for saved, name in exchanged.items()]
    refs = import_savepoint(
        opened=open_savepoint(target.url),
        storage=root,
        paths=JobPaths("new"),
        epoch=4,
        parallelism=3,
        max_parallelism=max_parallelism,
        states=states,
        run_tasks=run_here,
        now_ms=1400,
    )
    new = Cluster(root, "new", 3, max_parallelism, types, 4, Parent(kind="savepoint", savepoint_id="s"), refs, states)
    new.epoch({k: lambda s, k=k: (s.events.add(0), s.aged_events.add(0)) for k in range(1, 20)})
    found = new.read(range(1, 20))
    for k, model in found.items():
        assert (model.value, model.aged) == (-k, k)
        assert (model.events, model.aged_events) == ([-k, 0], [k, k + 1, 0])
    target = LocalStorage(f"{tmp_path}/s2")
    export_savepoint(storage=root, manifest=new.manifest, target=target, savepoint_id="s2", run_tasks=run_here)
    stamps = pd.read_parquet(f"{tmp_path}/s2/operators/counts!20by!20user/aged")["ttl_stamp"]
    assert set(stamps) == {1400}


def test_more_subtasks_than_key_groups(tmp_path: Path) -> None:
    root = LocalStorage(str(tmp_path))
    types = type_of(int), type_of(int), type_of(str)
    old = Cluster(root, "job", 2, 8, types)
    changes = {k: lambda s, k=k: (s.value.update(k), s.aged.update(-k)) for k in range(30)}
    old.epoch(changes, {1: set_lists(list("abcdefg"), [("u", 1)])})
    target = LocalStorage(f"{tmp_path}/s")
    export_savepoint(storage=root, manifest=old.manifest, target=target, savepoint_id="s", run_tasks=run_here)
    opened = open_savepoint(target.url)
    plan = plan_restore(Saved.of(opened.savepoint), [], [ProgramOperator(UID, True, complete=False)])
    refs = import_savepoint(
        opened=opened,
        storage=root,
        paths=JobPaths("new"),
        epoch=1,
        parallelism=7,
        max_parallelism=3,
        states=plan.states,
        run_tasks=run_here,
    )
    assert [ref.subtask for ref in refs] == list(range(7))
    new = Cluster(root, "new", 7, 3, types, 1, Parent(kind="savepoint", savepoint_id="s"), refs, plan.states)
    assert {k: (model.value, model.aged) for k, model in new.read(range(30)).items()} == {k: (k, -k) for k in range(30)}
    assert [plain for plain, _ in new.operator_lists()] == [[letter] for letter in "abcdefg"]
    assert all(union == [("u", 1)] for _, union in new.operator_lists())


def test_what_was_deleted_does_not_come_back(tmp_path: Path) -> None:
    root = LocalStorage(str(tmp_path))
    types = type_of(int), type_of(int), type_of(str)
    cluster = Cluster(root, "job", 2, 8, types)
    cluster.epoch({key: lambda s: (s.value.update(1), s.events.add(2), s.table.put("a", 3)) for key in range(20)})
    cluster.epoch({key: lambda s: (s.value.clear(), s.events.clear(), s.table.remove("a")) for key in range(20)})
    saved = export_savepoint(
        storage=root,
        manifest=cluster.manifest,
        target=LocalStorage(f"{tmp_path}/s"),
        savepoint_id="s",
        run_tasks=run_here,
    )
    assert [state.entries for state in saved.operators[0].states] == [0] * len(saved.operators[0].states)


def test_tasks_can_run_in_any_process() -> None:
    for task in (export_task.export_slice, import_task.import_slice, import_task.cut_files):
        assert pickle.loads(pickle.dumps(task.run)) is task.run
