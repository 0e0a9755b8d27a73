"""Differences between two savepoints by operator and state, computed for a range of key groups at a time."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import pyarrow as pa

from forkpoint.checkpoint.manifest import SourcePosition
from forkpoint.runtime.tasks.gc_pause import collector_paused
from forkpoint.savepoint.edit.rows import list_name, objects_of
from forkpoint.savepoint.edit.writer import SavepointWriter
from forkpoint.savepoint.format.layout import Layout, Role
from forkpoint.savepoint.format.rows import Rows, is_listed, store_order
from forkpoint.savepoint.format.tasks import Progress, no_progress
from forkpoint.savepoint.inspect.reader import SavepointReader, StateReader

Outcome = Literal["same", "changed", "added", "removed", "other"]


@dataclass(frozen=True)
class Sample:
    """An entry that differs. ``place``: its key and, depending on the state, namespace, map key, time or subtask.

    ``before`` and ``after`` are its values as Python objects, for list state whole lists; None where it is missing.
    """

    change: Literal["added", "removed", "changed"]
    place: dict[str, Any]
    before: Any
    after: Any


@dataclass(frozen=True)
class StateDiff:
    """A state, or the timers of an operator, in both savepoints. A list counts as one entry.

    ``outcome``: "added" or "removed" if only one savepoint has the state; "other" if entries cannot be compared, because the
    kind of state or the type of keys differs; ``why`` has details.
    """

    uid: str
    name: str
    outcome: Outcome
    rows_before: int
    rows_after: int
    added: int = 0
    removed: int = 0
    changed: int = 0
    why: str = ""
    samples: tuple[Sample, ...] = ()


@dataclass(frozen=True)
class ValueDiff:
    """A source's position or an operator's watermark in both savepoints; None where it is missing."""

    uid: str
    before: Any
    after: Any


@dataclass(frozen=True)
class SavepointDiff:
    """The differences between the savepoints at ``before`` and ``after``. ``states`` includes unchanged states."""

    before: str
    after: str
    states: tuple[StateDiff, ...]
    positions: tuple[ValueDiff, ...]
    watermarks: tuple[ValueDiff, ...]
    max_parallelism: tuple[int, int]

    @property
    def same(self) -> bool:
        """Whether a job restored from either continues in the same way."""
        return not (self.positions or self.watermarks) and all(state.outcome == "same" for state in self.states)

    def to_arrow(self) -> pa.Table:
        """A row for each state."""
        names = ("uid", "name", "outcome", "rows_before", "rows_after", "added", "removed", "changed", "why")
        return pa.table({name: [getattr(state, name) for state in self.states] for name in names})


def diff(
    before: SavepointReader | str,
    after: SavepointReader | str,
    *,
    samples: int = 5,
    stamps: bool = True,
    progress: Progress = no_progress,
) -> SavepointDiff:
    """Compare two savepoints by uid and state name. ``samples``: the maximum number of differing entries to keep per state.
    ``stamps``: whether to compare TTL stamps.

    Holds one file of each savepoint in memory at a time. If the max parallelisms differ, first rewrites the second savepoint
    with that of the first, in a temporary directory. Raises SavepointNotFound and SavepointCorrupt.
    """
    a = before if isinstance(before, SavepointReader) else SavepointReader.read(before)
    b = after if isinstance(after, SavepointReader) else SavepointReader.read(after)
    groups = (a.metadata.max_parallelism, b.metadata.max_parallelism)
    with tempfile.TemporaryDirectory(prefix="forkpoint-diff-") as scratch:
        other = b
        if groups[0] != groups[1]:
            other = SavepointWriter.from_existing_savepoint(b).with_max_parallelism(groups[0]).write(scratch)
        states = tuple(_states(a, other, samples, stamps, progress))
    ours, theirs = ({uid: _explicit(each) for uid, each in savepoint.positions.items()} for savepoint in (a, b))
    positions, watermarks = _differing(ours, theirs), _differing(a.watermarks, b.watermarks)
    return SavepointDiff(a.path, b.path, states, positions, watermarks, groups)


def _explicit(position: SourcePosition) -> dict[str, Any]:
    """The fields of a position that differ from the defaults."""
    content, defaults = position.content(), SourcePosition(kind=position.kind).content()
    content["splits"] = {
        name: {field: value for field, value in split.items() if value is not None and value is not False}
        for name, split in content["splits"].items()
    }
    return {field: value for field, value in content.items() if field == "kind" or value != defaults[field]}


def _differing(before: dict[str, Any], after: dict[str, Any]) -> tuple[ValueDiff, ...]:
    uids = dict.fromkeys([*before, *after])
    return tuple(ValueDiff(uid, before.get(uid), after.get(uid)) for uid in uids if before.get(uid) != after.get(uid))


def _states(a: SavepointReader, b: SavepointReader, samples: int, stamps: bool, progress: Progress) -> Iterator[StateDiff]:
    ours, theirs = ({(s.uid, s.kind == "timers", s.name): s for s in each.states} for each in (a, b))
    names = dict.fromkeys([*ours, *theirs])
    for number, name in enumerate(names):
        progress(number, len(names))
        one, other = ours.get(name), theirs.get(name)
        if one is None and other is not None:
            yield StateDiff(other.uid, other.name, "added", 0, other.count, added=other.count)
        elif other is None and one is not None:
            yield StateDiff(one.uid, one.name, "removed", one.count, 0, removed=one.count)
        elif one is not None and other is not None:
            yield _compare(one, other, samples, stamps)
    progress(len(names), len(names))


def _compare(a: StateReader, b: StateReader, samples: int, stamps: bool) -> StateDiff:
    if why := _incomparable(a, b):
        return StateDiff(a.uid, a.name, "other", a.count, b.count, why=why)
    added = removed = changed = 0
    found: list[Sample] = []
    why = "" if a.value_type == b.value_type else f"values were {a.value_type!r} and are {b.value_type!r}"
    for one, other in _pieces(a, b):
        if why == "" and one.equals(other):
            continue
        with collector_paused():
            ours, theirs = (_Entries(side.layout, table, raw=not why, stamps=stamps) for side, table in ((a, one), (b, other)))
            before, after = ours.content, theirs.content
            gone = [entry for entry in before if entry not in after]
            new = [entry for entry in after if entry not in before]
            both = [entry for entry, content in before.items() if entry in after and after[entry] != content]
        added, removed, changed = added + len(new), removed + len(gone), changed + len(both)
        left = max(0, samples - len(found))
        differing = [
            *(Sample("removed", ours.place(entry), ours.value(entry), None) for entry in gone[:left]),
            *(Sample("added", theirs.place(entry), None, theirs.value(entry)) for entry in new[:left]),
            *(Sample("changed", ours.place(entry), ours.value(entry), theirs.value(entry)) for entry in both[:left]),
        ]
        found += differing[:left]
    outcome: Outcome = "changed" if added or removed or changed or why else "same"
    return StateDiff(a.uid, a.name, outcome, a.count, b.count, added, removed, changed, why, tuple(found))


def _incomparable(a: StateReader, b: StateReader) -> str:
    if a.kind != b.kind:
        return f"was {a.kind} state and is {b.kind} state"
    roles: tuple[Role, ...] = ("key", "namespace", "map_key")
    for role in roles:
        ours, theirs = (each.part(role).type if each.has(role) else None for each in (a.layout, b.layout))
        if ours != theirs:
            return f"its {role.replace('_', ' ')} type was {ours!r} and is {theirs!r}"
    return ""


def _pieces(a: StateReader, b: StateReader) -> Iterator[tuple[pa.Table, pa.Table]]:
    """All rows of both sides, by ranges of key groups in which each side has at most one file."""
    if not a.layout.has("key_group"):
        yield a.to_arrow(), b.to_arrow()
        return
    files = [file for side in (a, b) for _, file in side.parts()]
    borders = sorted({border for file in files for border in (file.kg_start, file.kg_stop)})
    for start, stop in pairwise(borders):
        yield _rows(a, start, stop), _rows(b, start, stop)


def _rows(side: StateReader, start: int, stop: int) -> pa.Table:
    """The rows of these key groups; timers of both domains."""
    return pa.concat_tables([side.schema.empty_table(), *side.tables((start, stop))]).combine_chunks()


class _Entries:
    """Entries by their ``store_order``: as encoded values, or as objects if the types differ.

    ``names``: the ``store_order`` of each row; the elements of a list share a name, and their content is a list.
    """

    def __init__(self, layout: Layout, table: pa.Table, *, raw: bool, stamps: bool) -> None:
        self._layout, self._table, self._stamps = layout, table, stamps
        rows = Rows(layout, table)
        names = store_order(rows)
        if layout.info.is_timers:  # both domains
            domains = table.column("domain").to_pylist()
            names = [domain.encode() + name for domain, name in zip(domains, names, strict=True)]
        contents = self._contents(rows, raw)
        self.content: dict[bytes, Any]
        if is_listed(layout):
            self.names = list(map(list_name, names))
            self.content = {}
            for name, content in zip(self.names, contents, strict=True):
                self.content.setdefault(name, []).append(content)
        else:
            self.names = names
            self.content = dict(zip(names, contents, strict=True))

    def _contents(self, rows: Rows, raw: bool) -> Sequence[Any]:
        if not self._layout.has("value"):
            return [None] * rows.count
        values: Sequence[Any] = rows.encoded("value") if raw else rows.objects("value")
        if not self._stamps or not self._layout.has("ttl_stamp"):
            return values
        return list(zip(values, rows.parts["ttl_stamp"][0].to_pylist(), strict=True))

    def place(self, name: bytes) -> dict[str, Any]:
        """See ``Sample.place``."""
        omitted = ("key_group", "value", "ttl_stamp", "index")
        return {role: objects[0] for role, objects in self._objects(name).items() if role not in omitted}

    def value(self, name: bytes) -> Any:
        """The value of an entry, or a whole list."""
        values = self._objects(name).get("value")
        return values if values is None or is_listed(self._layout) else values[0]

    def _objects(self, name: bytes) -> dict[str, list[Any]]:
        rows = [row for row, each in enumerate(self.names) if each == name]
        return objects_of(self._layout, self._table.take(pa.array(rows)))
