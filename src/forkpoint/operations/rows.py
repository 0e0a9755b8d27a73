"""Comparing the output of two versions of a program, row by row and key by key. Pure."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

SHOWN_ROWS = 3


@dataclass(frozen=True)
class KeyDifference:
    """A key whose rows differ: some of those in only one of the versions."""

    key: Any
    only_a: list[Any]
    only_b: list[Any]


@dataclass(frozen=True)
class Comparison:
    """One sink's rows in both versions, with duplicates. ``key``: the key columns; None if rows are not records, so that each
    row is its own key. A key is the same if all its rows are."""

    uid: str
    rows_a: int
    rows_b: int
    only_a: int
    only_b: int
    key: list[str] | None
    keys_same: int
    keys_different: int
    keys_only_a: int
    keys_only_b: int
    samples: list[KeyDifference] = field(default_factory=list)

    @property
    def same(self) -> bool:
        return not self.only_a and not self.only_b


def compare_rows(
    uid: str, a: Iterable[Any], b: Iterable[Any], *, key: Sequence[str] | None = None, samples: int = 5
) -> Comparison:
    """Compare rows as JSON, regardless of their order and of the order of fields in a record.

    ``key``: columns; by default a record's first field (a list's first element). A missing column counts as null.
    """
    rows_a, rows_b = list(a), list(b)
    columns = list(key) if key is not None else _inferred([*rows_a[:1], *rows_b[:1]])
    by_key_a, by_key_b = _by_key(rows_a, columns), _by_key(rows_b, columns)
    only_a = {k: found for k, rows in by_key_a.items() if (found := rows - by_key_b.get(k, Counter()))}
    only_b = {k: found for k, rows in by_key_b.items() if (found := rows - by_key_a.get(k, Counter()))}
    differing = sorted(only_a.keys() | only_b.keys())
    keys = by_key_a.keys() | by_key_b.keys()
    return Comparison(
        uid, len(rows_a), len(rows_b), _total(only_a), _total(only_b), columns,
        keys_same=len(keys) - len(differing),
        keys_different=sum(1 for k in differing if k in by_key_a and k in by_key_b),
        keys_only_a=len(by_key_a.keys() - by_key_b.keys()),
        keys_only_b=len(by_key_b.keys() - by_key_a.keys()),
        samples=[
            KeyDifference(json.loads(k), _some(only_a.get(k, Counter())), _some(only_b.get(k, Counter())))
            for k in differing[:samples]
        ],
    )  # fmt: skip


def _inferred(rows: Sequence[Any]) -> list[str] | None:
    for row in rows:
        if isinstance(row, dict) and row:
            return [next(iter(row))]
        if isinstance(row, list) and row:
            return ["0"]
    return None


def _by_key(rows: Iterable[Any], columns: Sequence[str] | None) -> Mapping[str, Counter[str]]:
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        key = row if columns is None else [_column(row, column) for column in columns]
        found[_text(key[0] if columns is not None and len(key) == 1 else key)][_text(row)] += 1
    return found


def _column(row: Any, column: str) -> Any:
    if isinstance(row, dict):
        return row.get(column)
    if isinstance(row, list) and column.isdigit() and int(column) < len(row):
        return row[int(column)]
    return None


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _total(rows: Mapping[str, Counter[str]]) -> int:
    return sum(counter.total() for counter in rows.values())


def _some(rows: Counter[str]) -> list[Any]:
    return [json.loads(row) for row in islice(rows.elements(), SHOWN_ROWS)]
