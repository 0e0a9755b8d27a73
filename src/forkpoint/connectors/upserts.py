"""Elements as changes of rows by key: records are upserts, change records also deletions."""

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
    """A row that is written, or one whose key is deleted. ``fields``: by name."""

    deleted: bool
    fields: Mapping[str, Any]


def changes_of(element: Any, key: Sequence[str]) -> Iterator[RowChange]:
    """What an element changes in a table with this key: a record is written, a Row deleted if its kind is DELETE; a ``Change``
    (of Debezium's or Canal's messages) is either, or both, if it changes the key. None changes nothing.

    Raises TypeError for an element without named fields.
    """
    if element is None:
        return
    if _is_change(element):
        yield from _of_change(element, key)
    elif isinstance(element, Row):
        if element.get_row_kind() is not RowKind.UPDATE_BEFORE:
            yield RowChange(element.get_row_kind() is RowKind.DELETE, fields_of(element))
    else:
        yield RowChange(False, fields_of(element))


def _is_change(element: Any) -> bool:
    return isinstance(element, tuple) and getattr(element, "_fields", ())[:3] == ("kind", "before", "after")


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
    """One staged row: a deletion, a row as a whole, or a part of one, which leaves other fields as they are."""

    key: tuple[bytes | None, ...]
    deletes: bool
    whole: bool
    row: StagedRow


def needed(writes: Sequence[Write]) -> list[int]:
    """The places of those writes that have an effect once all are done: of each key, the last, a deletion before it (it removes
    fields that the last one doesn't have), and parts."""
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
