"""Converts elements to changes of rows by key: records are upserts, change records may be deletions, too."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from forkpoint.connectors.rows import StagedRow
from forkpoint.types import Row, RowKind


@dataclass(frozen=True)
class RowChange:
    """A row to write, or to delete by its key. ``fields`` by name."""

    deleted: bool
    fields: Mapping[str, Any]


def changes_of(element: Any, key: Sequence[str]) -> Iterator[RowChange]:
    """The changes that an element makes in a table with this key: it writes a record; it deletes a Row of kind DELETE; a
    ``Change`` (from Debezium's or Canal's messages) does either, or both if it changes the key. None makes no changes.

    Raises TypeError for an element without named fields.
    """
    if element is None:
        return
    if isinstance(element, tuple) and getattr(element, "_fields", ())[:3] == ("kind", "before", "after"):
        yield from _of_change(element, key)
    elif isinstance(element, Row):
        if element.get_row_kind() is not RowKind.UPDATE_BEFORE:
            yield RowChange(element.get_row_kind() is RowKind.DELETE, fields_of(element))
    else:
        yield RowChange(False, fields_of(element))


def _of_change(change: Any, key: Sequence[str]) -> Iterator[RowChange]:
    if change.kind is RowKind.UPDATE_BEFORE:
        return
    if change.kind is RowKind.DELETE:
        yield RowChange(True, fields_of(change.before))
        return
    after = fields_of(change.after)
    if change.kind is RowKind.UPDATE_AFTER and change.before is not None:
        before = fields_of(change.before)
        if all(name in before for name in key) and any(before[name] != after.get(name) for name in key):
            yield RowChange(True, before)
    yield RowChange(False, after)


def fields_of(record: Any) -> Mapping[str, Any]:
    """A record's fields by name. Raises TypeError if it has none."""
    if isinstance(record, Mapping):
        return record
    if isinstance(record, tuple) and hasattr(record, "_fields"):
        return dict(zip(record._fields, record, strict=True))
    if isinstance(record, Row) and record.field_names is not None:
        return record.as_dict()
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    if isinstance(record, msgspec.Struct):
        return {name: getattr(record, name) for name in record.__struct_fields__}
    raise TypeError(f"{record!r} has no named fields")


@dataclass(frozen=True)
class Write:
    """One staged row: a deletion, a complete row, or some fields, which leave other fields unchanged."""

    key: tuple[bytes | None, ...]
    deletes: bool
    whole: bool
    row: StagedRow


def needed(writes: Sequence[Write]) -> list[int]:
    """The indices of the writes that determine the final rows: per key, the last complete write, a deletion before it (which
    removes fields that the write lacks), and later partial writes."""
    kept: dict[tuple[bytes | None, ...], list[int]] = {}
    for at, write in enumerate(writes):
        before = kept.get(write.key)
        if before is None or write.deletes:
            kept[write.key] = [at]
        elif write.whole:
            kept[write.key] = [*(each for each in before[:1] if writes[each].deletes), at]
        else:
            before.append(at)
    return sorted(at for places in kept.values() for at in places)
