"""How far a source has read: ranges of tables, then transactions. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from forkpoint.contract.source import JSON
from forkpoint.errors import RestoreRefused
from forkpoint_postgres_cdc.shapes import Shape
from forkpoint_postgres_cdc.snapshots import Snapshot

Key = tuple[str, ...]
"""The values of a table's primary key, as text."""


@dataclass(frozen=True)
class Part:
    """A range of a table that was read in one snapshot: keys up to ``upto`` (None: all others) that are not in an earlier part.

    ``snapshot``: its text. It does not contain transactions whose commit record starts at ``high`` or later. Without a snapshot,
    the part contains no transaction.
    """

    upto: Key | None
    snapshot: str | None = None
    high: int = 0

    def sees(self, lsn: int, xid: int) -> bool:
        """Whether the rows read contain a transaction's changes."""
        return self.snapshot is not None and lsn < self.high and Snapshot.parse(self.snapshot).sees(xid)


DONE = (Part(None),)
NOWHERE: JSON = {"version": 1, "slot": None}


@dataclass(frozen=True)
class Position:
    """``slot``: the replication slot with the following changes. ``lsn``: transactions whose commit record starts before it have
    been read, and ``skip`` changes of the next transaction. ``tables``: the parts read by table; a table is complete if its last
    part has no end. ``stop``: the end of a bounded source, once known. ``shapes``: the tables' shapes so far."""

    slot: str
    lsn: int
    skip: int = 0
    tables: Mapping[str, tuple[Part, ...]] = field(default_factory=dict)
    stop: int | None = None
    shapes: Mapping[str, Shape] = field(default_factory=dict)

    def unread(self, tables: Collection[str]) -> list[str]:
        """The tables that have not been read completely."""
        return [table for table in tables if not _complete(self.tables.get(table, ()))]

    def after(self, table: str) -> Key | None:
        """The last key read from an incomplete table."""
        parts = self.tables.get(table, ())
        return parts[-1].upto if parts else None

    def read(self, table: str, part: Part) -> Position:
        """The position after another range of a table."""
        parts = self.tables.get(table, ())
        if parts and parts[-1].snapshot == part.snapshot:
            parts = parts[:-1]
        return replace(self, tables={**self.tables, table: (*parts, part)})

    def at(self, lsn: int, skip: int = 0) -> Position:
        """The position after reading changes up to ``lsn``. Drops snapshots that are no longer needed."""
        tables = {
            table: DONE if _complete(parts) and all(part.high <= lsn for part in parts) else parts
            for table, parts in self.tables.items()
        }
        return replace(self, lsn=lsn, skip=skip, tables=tables)

    def to_json(self) -> JSON:
        return {
            "version": 1,
            "slot": self.slot,
            "lsn": self.lsn,
            "skip": self.skip,
            "stop": self.stop,
            "tables": {
                table: [{"upto": part.upto and list(part.upto), "snapshot": part.snapshot, "high": part.high} for part in parts]
                for table, parts in self.tables.items()
            },
            "shapes": {table: {"oid": s.oid, "columns": sorted(s.columns)} for table, s in self.shapes.items()},
        }

    @staticmethod
    def from_json(saved: JSON | None) -> Position | None:
        """None if the source had not started when the position was saved."""
        if saved is None:
            return None
        if saved.get("version") != 1:
            raise RestoreRefused(
                f"the saved position has version {saved.get('version')!r}, but this release reads version 1; "
                "use the forkpoint release that wrote it, or give the source a new uid to start afresh"
            )
        if saved["slot"] is None:
            return None
        tables = {
            table: tuple(Part(None if p["upto"] is None else tuple(p["upto"]), p["snapshot"], p["high"]) for p in parts)
            for table, parts in saved["tables"].items()
        }
        shapes = {  # older positions have none
            table: Shape(shape["oid"], frozenset(shape["columns"])) for table, shape in saved.get("shapes", {}).items()
        }
        return Position(saved["slot"], saved["lsn"], saved["skip"], tables, saved["stop"], shapes)


def _complete(parts: tuple[Part, ...]) -> bool:
    return bool(parts) and parts[-1].upto is None


def lsn_text(lsn: int) -> str:
    """An LSN in PostgreSQL's notation."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
