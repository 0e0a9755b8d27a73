"""A job with every kind of state on the local engine, savepoints of it, and what a restore of one brings."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import forkpoint as fp
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.savepoint.format.opened_savepoint import OpenedSavepoint
from forkpoint.savepoint.format.tasks import run_here
from forkpoint.savepoint.restore.compatibility import ProgramOperator
from forkpoint.savepoint.restore.importer import import_savepoint
from forkpoint.savepoint.restore.restore_plan import Saved, plan_restore
from forkpoint.state import read_snapshot, sid_of
from forkpoint.storage.base import open_storage
from forkpoint.testing import Eof, run_local

MAX_PARALLELISM = 8
Entries = dict[tuple[str, str], list[tuple[bytes, bytes]]]


class Event(NamedTuple):
    user: str
    amount: int
    time: int


class Total(NamedTuple):
    count: int
    sum: int


class Sum(fp.AggregateFunction):
    def create_accumulator(self) -> Any:
        return Total(0, 0)

    def add(self, value: Any, accumulator: Any) -> Any:
        return Total(accumulator.count + 1, accumulator.sum + value)

    def get_result(self, accumulator: Any) -> Any:
        return accumulator.sum

    def merge(self, a: Any, b: Any) -> Any:
        return Total(a.count + b.count, a.sum + b.sum)


class Everything(fp.KeyedBroadcastProcessFunction):
    total = fp.ValueStateDescriptor("total", Total)
    aged = fp.ValueStateDescriptor("aged", int).enable_time_to_live(timedelta(days=9999))
    amounts = fp.ListStateDescriptor("amounts", int)
    pairs = fp.ListStateDescriptor("pairs", tuple[str, int]).enable_time_to_live(timedelta(days=9999))
    by_parity = fp.MapStateDescriptor("by parity", str, int)
    sum = fp.ReducingStateDescriptor("sum", lambda a, b: a + b, int)
    mean = fp.AggregatingStateDescriptor("mean", Sum(), Total)
    anything = fp.ValueStateDescriptor("anything", fp.Types.ANY())
    rules = fp.MapStateDescriptor("rules", str, int)

    def process_element(self, e: Event, ctx: Any) -> Iterator[Any]:
        self.total.update(Total(1, e.amount))
        self.aged.update(e.amount)
        self.amounts.add(e.amount)
        self.pairs.add((e.user, e.amount))
        self.by_parity.put("odd" if e.amount % 2 else "even", e.amount)
        self.sum.add(e.amount)
        self.mean.add(e.amount)
        self.anything.update({"last": e.amount})
        ctx.timer_service().register_event_time_timer(e.time + 10_000)
        ctx.timer_service().register_processing_time_timer(e.time + 10**13)
        yield e.user

    def process_broadcast_element(self, e: Event, ctx: Any) -> Iterator[Any]:
        ctx.get_broadcast_state(self.rules).put(e.user, e.amount)
        yield e.user


class Buffer(fp.ProcessFunction, fp.CheckpointedFunction):
    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        self.seen = store.get_list_state(fp.ListStateDescriptor("seen", str))
        self.known = store.get_union_list_state(fp.ListStateDescriptor("known", tuple[str, int]))

    def snapshot_state(self, context: Any) -> None:
        pass

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.seen.add(value.user)
        self.known.add((value.user, value.amount))
        yield value


def build(env: Any, source: Any) -> Any:
    strategy = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e, _: e.time)
    events = env.from_source(source, strategy, "events", type_info=Event).uid("events")
    buffered = events.process(Buffer(), Event).uid("buffer")
    keyed = buffered.key_by(lambda e: e.user, str)
    rules = buffered.filter(lambda e: e.amount % 5 == 0).uid("rules").broadcast(Everything.rules)
    sessions = keyed.window(fp.EventTimeSessionWindows.with_gap(timedelta(seconds=1)))
    summed = sessions.reduce(lambda a, b: Event(a.user, a.amount + b.amount, b.time)).uid("windows")
    by_record = events.key_by(lambda e: Total(e.amount % 3, 1), Total).reduce(lambda a, b: b).uid("records")
    return {
        "state": keyed.connect(rules).process(Everything(), str).uid("everything"),
        "windows": summed,
        "last": by_record,
    }


def saved(root: Path, events: int = 40) -> Path:
    """The directory of a savepoint after so many events. Each state has several rows, in one part or two."""
    given = [Event(f"u{i % 7}", i, i * 100) for i in range(events)]
    run = run_local(
        build,
        [*given, Eof(savepoint=True)],
        state_root=str(root),
        parallelism=2,
        max_parallelism=MAX_PARALLELISM,
        epochs=15,
    )
    assert run.savepoint is not None
    return Path(run.savepoint.removeprefix("file://"))


def restored(opened: OpenedSavepoint, parallelism: int = 3, max_parallelism: int = MAX_PARALLELISM) -> Entries:
    """What a restore writes: the entries of each state, in the order of all subtasks' snapshots."""
    operators = [ProgramOperator(o.uid, True, complete=False) for o in opened.savepoint.operators]
    sources = [
        ProgramOperator(uid, False, position.kind)
        for uid, position in opened.savepoint.sources.items()
        if uid not in {o.uid for o in opened.savepoint.operators}
    ]
    plan = plan_restore(Saved.of(opened.savepoint), [], [*operators, *sources], allow_non_restored=True)
    names = {mapping.target.sid: (mapping.saved_uid, mapping.saved_name) for mapping in plan.states}
    target = open_storage(f"memory://{uuid.uuid4().hex}")
    refs = import_savepoint(
        opened=opened,
        storage=target,
        paths=JobPaths("new"),
        epoch=1,
        parallelism=parallelism,
        max_parallelism=max_parallelism,
        states=plan.states,
        run_tasks=run_here,
    )
    found: Entries = {name: [] for name in names.values()}
    for ref in refs:
        for piece in read_snapshot(target.read(ref.path), 0, 0x1_0000):
            for key, value in zip(piece.keys, piece.values, strict=True):
                found[names[sid_of(key)]].append((key, value or b""))
    target.delete_prefix("jobs")
    return {name: entries for name, entries in found.items() if entries}
