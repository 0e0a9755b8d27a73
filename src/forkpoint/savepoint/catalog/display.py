"""Shows a savepoint's operators and states as rows, and as HTML in notebooks. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forkpoint.markup import facts, page, table
from forkpoint.wording import duration, moment, number, size, type_name, watermark

if TYPE_CHECKING:
    from forkpoint.checkpoint.savepoint_manifest import Savepoint

OPERATOR_TITLES = ("operator", "kind", "state", "key", "type", "entries", "size", "watermark")


def totals(savepoint: Savepoint) -> tuple[int, int]:
    """The entries and bytes of all states."""
    states = [state for operator in savepoint.operators for state in operator.states]
    return sum(s.entries for s in states), sum(s.bytes for s in states)


def operator_rows(savepoint: Savepoint) -> list[list[str]]:
    """A row per state and per operator without state; only an operator's first row has its uid, kind and watermark."""
    rows: list[list[str]] = []
    for operator in savepoint.operators:
        mark = savepoint.watermarks.get(operator.uid)
        first, last = [operator.uid, operator.kind], "" if mark is None else watermark(mark)
        if not operator.states:
            rows.append([*first, "", "", "", "", "", last])
        for state in operator.states:
            info = state.info
            inner = ", ".join(type_name(part) for part in (info.namespace_type, info.value_type) if part is not None)
            ttl = f", ttl {duration(info.ttl_ms)}" if info.ttl_ms is not None else ""
            shown = f"{info.kind}<{inner}>{ttl}" if inner else f"{info.kind}{ttl}"
            counts = [number(state.entries), size(state.bytes)]
            rows.append([*first, info.name, type_name(info.key_type), shown, *counts, last])
            first, last = ["", ""], ""
    return rows


def savepoint_html(savepoint: Savepoint, path: str) -> str:
    """The output of ``forkpoint show`` for a savepoint, as HTML."""
    entries, total = totals(savepoint)
    summary = {
        "path": path,
        "label": savepoint.label,
        "note": savepoint.note,
        "job": f"{savepoint.job}, run {savepoint.run}, epoch {savepoint.epoch}",
        "created": f"{moment(savepoint.created_ms)} UTC",
        "state": f"{number(entries)} entries, {size(total)}",
    }
    operators = table(OPERATOR_TITLES, operator_rows(savepoint), right=("entries", "size"))
    return page(f"Savepoint {savepoint.id}", facts(summary), operators)
