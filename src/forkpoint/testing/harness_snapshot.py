"""Snapshots of harnesses, and how another harness's subtasks are restored from them."""

from __future__ import annotations

import msgspec

from forkpoint.savepoint.entries import redistribute
from forkpoint.state import OPERATOR_KG, Changes, read_snapshot, sid_of


class HarnessSnapshot(msgspec.Struct, frozen=True):
    """``watermarks_ms``: one for each input. ``files``: snapshots of all subtasks' stores."""

    watermarks_ms: list[int]
    processing_time_ms: int
    max_parallelism: int
    operator_kinds: dict[int, str]
    files: list[bytes]

    def keyed(self, kg_start: int, kg_stop: int) -> list[Changes]:
        """The entries of these key groups."""
        return [chunk for file in self.files for chunk in read_snapshot(file, kg_start, kg_stop)]

    def operator_state(self, subtask: int, parallelism: int) -> Changes:
        """One subtask's share of all subtasks' operator state."""
        entries: dict[int, list[tuple[bytes, bytes]]] = {}
        for file in self.files:
            for chunk in read_snapshot(file, OPERATOR_KG, OPERATOR_KG + 1):
                for key, value in zip(chunk.keys, chunk.values, strict=True):
                    entries.setdefault(sid_of(key), []).append((key, value or b""))
        keys: list[bytes] = []
        values: list[bytes | None] = []
        for sid, found in sorted(entries.items()):
            names, contents = [k for k, _ in found], [v for _, v in found]
            mine = redistribute(self.operator_kinds[sid], names, contents, subtask, len(self.files), parallelism)
            keys += mine[0]
            values += mine[1]
        return Changes(keys, values)
