"""Random edits against a dict: what a savepoint holds after any of them is what a dict would hold."""

from __future__ import annotations

import copy
import tempfile
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import forkpoint as fp
from example_counts import examples
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.savepoint.edit import data, tasks
from forkpoint.savepoint.edit.drafts import ExternalData
from forkpoint.savepoint.edit.rows import store_order
from forkpoint.savepoint.format import sorting
from forkpoint.savepoint.format.opened_savepoint import open_savepoint
from forkpoint.savepoint.format.rows import Rows
from forkpoint.savepoint.format.tasks import run_here
from forkpoint.savepoint.restore.compatibility import ProgramOperator
from forkpoint.savepoint.restore.importer import import_savepoint
from forkpoint.savepoint.restore.restore_plan import Saved, plan_restore
from forkpoint.state import key_group, key_hash
from forkpoint.state_processor import SavepointReader, SavepointWriter, diff
from forkpoint.storage.base import LocalStorage

VALUE = fp.ValueStateDescriptor("one", int)
LIST = fp.ListStateDescriptor("many", int)
MAP = fp.MapStateDescriptor("table", str, int)

numbers = st.integers(-(2**40), 2**40)
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=4)
KEYS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (int, numbers),
    (str, texts),
    (tuple[str, int], st.tuples(texts, numbers)),
    (fp.Types.ANY(), st.one_of(numbers, texts)),
]


@dataclass
class Model:
    uid: str = "op"
    one: dict[Any, int] = field(default_factory=dict)
    many: dict[Any, list[int]] = field(default_factory=dict)
    table: dict[Any, dict[str, int]] = field(default_factory=dict)
    timers: set[tuple[Any, int]] = field(default_factory=set)

    def keys(self) -> list[Any]:
        return list({**self.one, **self.many, **self.table, **{key: None for key, _ in self.timers}})

    def kept(self, keep: Any) -> Model:
        return Model(
            self.uid,
            *({k: v for k, v in each.items() if keep(k)} for each in (self.one, self.many, self.table)),
            {(k, t) for k, t in self.timers if keep(k)},
        )

    def keyed(self, by: Any) -> Model:
        return Model(
            self.uid,
            *({by(k): v for k, v in each.items()} for each in (self.one, self.many, self.table)),
            {(by(k), t) for k, t in self.timers},
        )


def keys_table(of: Any, keys: list[Any]) -> dict[str, Any]:
    """The columns of keys; ANY takes Python objects, which no Arrow array of mixed ones could be made of."""
    kind = fp.Types.ANY() if of is fp.Types.ANY() else None
    if kind is not None:
        return {"key": kind.to_arrow(keys)}
    if of not in (int, str):
        return {
            "key_f0": pa.array([k[0] for k in keys], pa.string()),
            "key_f1": pa.array([k[1] for k in keys], pa.int64()),
        }
    return {"key": pa.array(keys, pa.int64() if of is int else pa.string())}


def put(writer: SavepointWriter, model: Model, of: Any) -> SavepointWriter:
    lists = [(k, v) for k, each in model.many.items() for v in each]
    entries = [(k, m, v) for k, each in model.table.items() for m, v in each.items()]
    longs, strings = pa.int64(), pa.string()
    one = {**keys_table(of, list(model.one)), "value": pa.array(model.one.values(), longs)}
    many = {**keys_table(of, [k for k, _ in lists]), "value": pa.array([v for _, v in lists], longs)}
    table = {
        **keys_table(of, [k for k, _, _ in entries]),
        "map_key": pa.array([m for _, m, _ in entries], strings),
        "value": pa.array([v for _, _, v in entries], longs),
    }
    timers = {
        **keys_table(of, [k for k, _ in model.timers]),
        "timestamp": pa.array([t for _, t in model.timers], longs),
    }
    for descriptor, columns in ((VALUE, one), (LIST, many), (MAP, table)):
        writer.with_state(model.uid, descriptor, pa.table(columns), key_type=of)
    return writer.with_timers(model.uid, pa.table(timers))


def read(savepoint: SavepointReader, uid: str) -> Model:
    found = Model(uid)
    found.one = {e.key: e.value for e in savepoint.state(uid, "one").rows()}
    for entry in savepoint.state(uid, "many").rows():
        assert entry.index == len(found.many.setdefault(entry.key, []))
        found.many[entry.key].append(entry.value)
    for entry in savepoint.state(uid, "table").rows():
        found.table.setdefault(entry.key, {})[entry.map_key] = entry.value
    found.timers = {(e.key, e.timestamp) for e in savepoint.timers(uid).rows()}
    return found


def check_files(savepoint: SavepointReader, of: Any) -> None:
    """Key groups are the hash's, files cover their ranges, and rows are in the store's order."""
    savepoint.verify()
    key_type = fp.state_processor.SavepointReader.read(savepoint.path).states[0].key_type
    assert key_type is not None
    for state in savepoint.states:
        for entry in state.rows():
            assert entry.key_group == key_group(key_hash(entry.key, key_type), savepoint.metadata.max_parallelism)
        for spec, file in state.parts():
            order = store_order(Rows(state.layout, pa.concat_tables(state.part(spec, file))))
            assert order == sorted(order)


def models(keys: st.SearchStrategy[Any]) -> st.SearchStrategy[Model]:
    return st.builds(
        Model,
        one=st.dictionaries(keys, numbers, max_size=12),
        many=st.dictionaries(keys, st.lists(numbers, min_size=1, max_size=4), max_size=6),
        table=st.dictionaries(keys, st.dictionaries(texts, numbers, min_size=1, max_size=3), max_size=6),
        timers=st.sets(st.tuples(keys, st.integers(0, 99)), max_size=8),
    )


EDITS = [
    "keep keys",
    "keep ones",
    "keep many",
    "map one",
    "map many",
    "map table",
    "key",
    "groups",
    "name",
    "put",
    "timers",
]


def edited(draw: Any, writer: SavepointWriter, model: Model, of: Any, keys: Any) -> Model:
    """One random edit, of the writer and of the model."""
    uid = model.uid
    given = any(isinstance(s.origin, ExternalData) for s in writer._draft.operators[uid].states.values())
    kind = draw(st.sampled_from([k for k in EDITS if not given or k in ("groups", "name", "put")]))
    number = draw(numbers)
    match kind:
        case "keep keys":
            gone = draw(st.sets(st.sampled_from(model.keys() or [None]), max_size=3))
            writer.filter(uid, lambda e: e.key not in gone)
            return model.kept(lambda key: key not in gone)
        case "keep ones":
            writer.filter(uid, f"value > {number}", "one")
            return replace(model, one={k: v for k, v in model.one.items() if v > number})
        case "keep many":
            writer.filter(uid, lambda e: (e.value + e.index) % 2 == 0, "many")
            many = {k: [v for i, v in enumerate(each) if (v + i) % 2 == 0] for k, each in model.many.items()}
            return replace(model, many={k: v for k, v in many.items() if v})
        case "map one":
            writer.map(uid, "one", lambda v: v // 2 if v > number else None)
            return replace(model, one={k: v // 2 for k, v in model.one.items() if v > number})
        case "map many":
            writer.map(uid, "many", lambda each: [*reversed(each), number])
            return replace(model, many={k: [*reversed(v), number] for k, v in model.many.items()})
        case "map table":
            writer.map(uid, "table", lambda each: {f"{k}!": v for k, v in each.items()})
            return replace(model, table={k: {f"{m}!": v for m, v in each.items()} for k, each in model.table.items()})
        case "key":
            by = {int: lambda k: k + number, str: lambda k: f"+{k}"}.get(
                of, lambda k: (k[0], k[1] - 1) if isinstance(k, tuple) else (k, 1)
            )
            if of is fp.Types.ANY():
                by = repr
            writer.re_key(uid, by)
            return model.keyed(by)
        case "groups":
            writer.with_max_parallelism(draw(st.sampled_from([1, 5, 64])))
        case "name":
            writer.change_operator_identifier(uid, f"{uid}'")
            return replace(model, uid=f"{uid}'")
        case "put":
            one = draw(st.dictionaries(keys, numbers, max_size=5))
            writer.with_state(uid, VALUE, pa.table({**keys_table(of, list(one)), "value": pa.array(one.values(), pa.int64())}))
            return replace(model, one=one)
        case "timers":
            writer.filter(uid, "timestamp < 50", "timers")
            return replace(model, timers={(k, t) for k, t in model.timers if t < 50})
    return model


@examples(5, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_edits_do_what_a_dict_would(drawn: st.DataObject) -> None:
    draw = drawn.draw
    of, keys = draw(st.sampled_from(KEYS))
    model = draw(models(keys))
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        # Few entries have to do for many slices, blocks and runs.
        patch.setattr(sorting, "ENTRIES_PER_SLICE", draw(st.sampled_from([2, 10**5])))
        patch.setattr(tasks, "BLOCK_ROWS", draw(st.sampled_from([1, 3, 10**5])))
        patch.setattr(data, "RUN_ROWS", draw(st.sampled_from([1, 4, 10**5])))
        new = SavepointWriter.new_savepoint("job", max_parallelism=draw(st.sampled_from([4, 128])), parallelism=2)
        savepoint = put(new, model, of).write(f"{directory}/0")
        for generation in range(1, 3):
            check_files(savepoint, of)
            assert read(savepoint, model.uid) == model
            writer, before = SavepointWriter.from_existing_savepoint(savepoint), copy.deepcopy(model)
            for _ in range(draw(st.integers(0, 3))):
                model = edited(draw, writer, model, of, keys)
            after = writer.write(f"{directory}/{generation}")
            check_diff(savepoint, after, before, model)
            savepoint = after
        check_files(savepoint, of)
        assert read(savepoint, model.uid) == model
        check_restored(directory, savepoint, draw(st.sampled_from([1, 3])), draw(st.sampled_from([3, 16])))


def check_diff(a: SavepointReader, b: SavepointReader, before: Model, after: Model) -> None:
    found = {(s.uid, s.name): s for s in diff(a, b).states}
    if before.uid != after.uid:
        assert {s.outcome for s in found.values()} == {"added", "removed"}
        return
    for name in ("one", "many", "table"):
        old, new = flat(getattr(before, name), name), flat(getattr(after, name), name)
        state = found[after.uid, name]
        assert state.added == len(new.keys() - old.keys())
        assert state.removed == len(old.keys() - new.keys())
        assert state.changed == len([k for k in old.keys() & new.keys() if old[k] != new[k]])
        assert (state.outcome == "same") == (old == new)
        assert len(state.samples) == min(5, state.added + state.removed + state.changed)
    timers = found[after.uid, "timers"]
    assert (timers.added, timers.removed) == (len(after.timers - before.timers), len(before.timers - after.timers))


def flat(content: dict[Any, Any], name: str) -> dict[Any, Any]:
    return {(k, m): v for k, each in content.items() for m, v in each.items()} if name == "table" else content


def check_restored(directory: str, savepoint: SavepointReader, parallelism: int, max_parallelism: int) -> None:
    """The ordinary restore takes it, with every entry."""
    opened = open_savepoint(savepoint.path)
    operators = [ProgramOperator(uid, True, complete=False) for uid in savepoint.operators]
    plan = plan_restore(Saved.of(opened.savepoint), [], operators)
    refs = import_savepoint(
        opened=opened,
        storage=LocalStorage(f"{directory}/root"),
        paths=JobPaths("new"),
        epoch=7,
        parallelism=parallelism,
        max_parallelism=max_parallelism,
        states=plan.states,
        run_tasks=run_here,
    )
    lists = len({repr(e.key) for s in savepoint.states if s.kind == "list" for e in s.rows()})
    assert sum(ref.entries for ref in refs) == lists + sum(s.count for s in savepoint.states if s.kind != "list")
