"""Whether a program's classes accept saved values: ``__post_init__`` may raise, and the restore says so instead of each read."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import pyarrow as pa

from forkpoint.checkpoint.states import StateInfo
from forkpoint.errors import RestoreRefused
from forkpoint.savepoint.layout import layout_of
from forkpoint.savepoint.rows import Rows
from forkpoint.types import TypeInformation
from forkpoint.types.wire import shown


def validated(tables: Iterable[pa.Table], info: StateInfo, declared: bytes) -> Iterator[pa.Table]:
    """The tables of a state, after each of its values was built once. ``declared``: the pickled type of its values.

    Raises RestoreRefused, which names the key and the value, if a class refuses a value.
    """
    layout, of = layout_of(info), _loaded(declared)
    for table in tables:
        rows = Rows(layout, table)
        columns = [column.combine_chunks() for column in rows.parts["value"]]
        try:
            of.from_columns(columns)
        except Exception as error:
            raise _refused(rows, info, of, columns) or error from error
        yield table


@lru_cache(maxsize=64)
def _loaded(declared: bytes) -> TypeInformation[Any]:
    return pickle.loads(declared)  # type: ignore[no-any-return]  # written by this restore


def _refused(rows: Rows, info: StateInfo, of: TypeInformation[Any], columns: list[pa.Array]) -> RestoreRefused | None:
    """The error that names the first row that cannot be built."""
    for place in range(rows.count):
        try:
            of.from_columns([column.slice(place, 1) for column in columns])
        except Exception as error:
            value = shown(rows.objects("value")[place])
            key = f" of key {shown(rows.objects('key')[place])}" if rows.layout.has("key") else ""
            return RestoreRefused(
                f"{info.where}: the saved value {value}{key} is refused by the class that the program declares: {error!r}; let "
                f"its __post_init__ accept the value, or convert it: migrate_state({info.version}, …, state={info.name!r})"
            )
    return None
