"""Rows of a savepoint's files: access to their parts by role, and their order."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forkpoint.errors import SavepointCorrupt
from forkpoint.runtime.columnar.leaves import Codec
from forkpoint.savepoint.format.layout import Columns, Layout, Role
from forkpoint.state import hash_column, hash_encoded, key_group, operator_key, state_key, timer_key
from forkpoint.types import TypeInformation
from forkpoint.types.keys import is_key_form

Ints = npt.NDArray[np.int64]

INDEX_BYTES = 8  # at the end of the ``store_order`` of a list's element


def bulk_codec(type: TypeInformation) -> Codec:
    """Encodes and decodes whole columns of a type."""
    return _codec(type, is_key_form(type))


@lru_cache(maxsize=256)
def _codec(type: TypeInformation, canonical: bool) -> Codec:  # a type equals its key form, so the cache needs both
    return Codec(type)


class Rows:
    """The columns of a table by the roles of their parts."""

    def __init__(self, layout: Layout, table: pa.Table) -> None:
        self.layout = layout
        self.count = table.num_rows
        self.parts: dict[str, Columns] = {part.role: layout.columns(table, part.role) for part in layout.parts}
        self._encoded: dict[Role, list[bytes]] = {}

    def objects(self, role: Role) -> list[Any]:
        """The Python objects of a part."""
        return self.layout.part(role).type.from_columns(self.parts[role])

    def encoded(self, role: Role) -> list[bytes]:
        """The stored bytes of a part."""
        if role not in self._encoded:
            part, columns = self.layout.part(role), self.parts[role]
            self._encoded[role] = (
                columns[0].to_pylist()
                if part.raw
                else bulk_codec(part.type).encode_columns([column.combine_chunks() for column in columns])
            )
        return self._encoded[role]

    def binary(self, role: Role) -> pa.Array:
        """``encoded`` as a binary array."""
        part, columns = self.layout.part(role), self.parts[role]
        if not part.raw:
            found = bulk_codec(part.type).encode_binary([column.combine_chunks() for column in columns])
            return pa.array(self.encoded(role), pa.binary()) if found is None else found
        return columns[0].combine_chunks()

    def numbers(self, role: Role) -> Ints:
        """A column of integers. Raises SavepointCorrupt for nulls."""
        (column,) = self.parts[role]
        if column.null_count:
            raise invalid(self.layout, f"column {role} holds {column.null_count} nulls")
        return np.asarray(column.to_numpy()).astype(np.int64, copy=False)

    def key_groups(self, max_parallelism: int) -> Any:
        of = self.layout.part("key").type
        if pa.types.is_integer(of.arrow_type):
            hashes = hash_column(self.parts["key"][0], of)
        else:
            hashes = hash_encoded(self.encoded("key"))
        return key_group(hashes, max_parallelism)


def invalid(layout: Layout, what: str) -> SavepointCorrupt:
    return SavepointCorrupt(f"{layout.info.where}: {what}")


def is_listed(layout: Layout) -> bool:
    """Whether several rows form one list."""
    return layout.has("index") and layout.info.kind != "broadcast"


def store_order(rows: Rows) -> list[bytes]:
    """Bytes per row that sort as the store does: by key group, encoded key and namespace; timers by key group and time first.
    Equal for duplicate rows."""
    layout = rows.layout

    def numbers(role: Role) -> list[int]:
        return rows.parts[role][0].to_pylist()  # type: ignore[no-any-return]

    if layout.info.kind == "broadcast":
        return [operator_key(0, 0, 0) + key for key in rows.encoded("map_key")]
    if layout.info.is_operator_state:
        return [operator_key(0, subtask, index) for subtask, index in zip(numbers("subtask"), numbers("index"), strict=True)]
    space: Role = "map_key" if layout.has("map_key") else "namespace"
    spaces = rows.encoded(space) if layout.has(space) else [b""] * rows.count
    groups, keys = numbers("key_group"), rows.encoded("key")
    if layout.info.is_timers:
        times = numbers("timestamp")
        return [timer_key(g, 0, t, k, s) for g, t, k, s in zip(groups, times, keys, spaces, strict=True)]
    names = [state_key(g, 0, k, s) for g, k, s in zip(groups, keys, spaces, strict=True)]
    if is_listed(layout):
        return [name + index.to_bytes(INDEX_BYTES, "big") for name, index in zip(names, numbers("index"), strict=True)]
    return names
