"""Results of operations as JSON, the same on the command line and over HTTP. Pure.

`forkpoint list` does not need savepoints, so the other functions import the code for them when called.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from msgspec import structs

from forkpoint.storage.places import plain_place
from forkpoint.types.readable import plain
from forkpoint.wording import type_name

if TYPE_CHECKING:
    from forkpoint.checkpoint.lineage import Node
    from forkpoint.checkpoint.savepoint_manifest import Savepoint
    from forkpoint.operations.jobs.cleanup import Leftovers
    from forkpoint.operations.jobs.explanation import JobExplained
    from forkpoint.operations.jobs.lineage import Tree
    from forkpoint.operations.jobs.recovery import Recovery
    from forkpoint.operations.saved_state.catalog import SavepointShown
    from forkpoint.operations.saved_state.edits import Edited
    from forkpoint.operations.saved_state.inspection import QueryResult, StateEntries, StateShown, StatesShown
    from forkpoint.protocol.registry import RunView
    from forkpoint.savepoint.catalog.names import Found
    from forkpoint.state_processor import SavepointDiff


def attributes(thing: Any, names: str) -> dict[str, Any]:
    """The attributes with these names, separated by spaces; None for each if the object is None."""
    return {name: None if thing is None else getattr(thing, name) for name in names.split()}


def view_json(view: RunView) -> dict[str, Any]:
    late = view.late_records_dropped
    return {
        **attributes(view, "job run state newest epoch started_ms ended_ms uptime_ms records_read"),
        "late_records_dropped": None if late is None else dict(late),
        **attributes(view, "restarts reason doing"),
        "problems": [structs.asdict(each) for each in view.problems],
        "parent": view.parent.content(),
        **attributes(view.endpoint, "pid machine port log"),
    }


def savepoints_json(found: Sequence[Found]) -> dict[str, Any]:
    """Savepoints, and the remains of unfinished and damaged ones."""
    broken = [each for each in found if each.listed.savepoint is None]
    return {
        "savepoints": [_listed_json(each.path, s) for each in found if (s := each.listed.savepoint) is not None],
        "broken": [{"job": each.job, "path": each.path, **attributes(each.listed, "problem unfinished")} for each in broken],
    }


def _listed_json(path: str, savepoint: Savepoint) -> dict[str, Any]:
    from forkpoint.savepoint.catalog.display import totals

    entries, size = totals(savepoint)
    shown = attributes(savepoint, "id job run epoch created_ms label note drained schedule_ms own_bytes")
    return {**shown, "entries": entries, "bytes": size, "path": path}


def savepoint_json(shown: SavepointShown) -> dict[str, Any]:
    """A savepoint's complete description."""
    from forkpoint.savepoint.catalog.display import totals

    entries, size = totals(shown.savepoint)
    record = shown.savepoint.content()
    return {"path": shown.path, "entries": entries, "bytes": size, "savepoint": record}


def tree_json(tree: Tree) -> dict[str, Any]:
    """Runs and savepoints with their parents, in the order of drawing."""
    return {"nodes": [_node_json(node, tree) for node in tree.nodes]}


def _node_json(node: Node, tree: Tree) -> dict[str, Any]:
    from forkpoint.checkpoint.manifest import Run
    from forkpoint.checkpoint.savepoint_manifest import Savepoint
    from forkpoint.operations.jobs.lineage import job_of

    key, parent, record = node.key, node.parent, node.record
    run = (key.job, key.id) if key.kind == "run" else None
    savepoint = record if isinstance(record, Savepoint) else None
    return {
        **attributes(key, "kind id"),
        "job": job_of(node),
        **attributes(savepoint, "run"),
        "parent": None if parent is None else {"kind": parent.kind, "job": parent.job or None, "id": parent.id},
        **attributes(node, "epoch created_ms"),
        **attributes(tree.runs.get(run) if run is not None else None, "state"),
        **attributes(record, "label"),
        **attributes(savepoint, "note drained schedule_ms"),
        "path": tree.paths.get(key.id) if key.kind == "savepoint" else None,
        "missing": record is None,
        "program": tree.programs.get(run) if run is not None else None,
        "emptied": record.emptied if isinstance(record, Run) else [],
    }


def explained_json(found: JobExplained) -> dict[str, Any]:
    """The operators of a job."""
    return {**attributes(found, "job run state"), "operators": [asdict(each) for each in found.operators]}


def states_json(found: StatesShown) -> dict[str, Any]:
    """The states of a savepoint."""
    return {**attributes(found, "path job epoch"), "states": [_state_json(each) for each in found.states]}


def _state_json(each: StateShown) -> dict[str, Any]:
    types = [type_name(type.describe()) for type in each.types]
    return {
        **attributes(each, "uid state kind"),
        "key_type": None if each.key_type is None else type_name(each.key_type.describe()),
        "type": ", ".join(types) or None,
        **attributes(each, "rows bytes schema view columns"),
    }


def entries_json(found: StateEntries) -> dict[str, Any]:
    """Rows of a state."""
    rows = [{role: plain(value) for role, value in row.items()} for row in found.rows]
    return {**attributes(found, "path job epoch uid state total"), "rows": rows}


def query_json(found: QueryResult) -> dict[str, Any]:
    """The result of a query."""
    rows = [list(map(plain, row)) for row in rows_of(found.table)]
    return {**attributes(found, "path job epoch truncated"), "columns": found.table.column_names, "rows": rows}


def rows_of(table: Any) -> list[tuple[Any, ...]]:
    """The rows of an Arrow table; two columns may have one name."""
    return list(zip(*map(_values, table.columns), strict=True))


def _values(column: Any) -> list[Any]:
    """Decimals without a fraction become int, because DuckDB's sums of integers have this type."""
    values: list[Any] = column.to_pylist()
    if getattr(column.type, "scale", None) != 0:
        return values
    return [None if value is None else int(value) for value in values]


def diff_json(found: SavepointDiff) -> dict[str, Any]:
    """The differences between two savepoints."""
    return {
        "before": plain_place(found.before),
        "after": plain_place(found.after),
        "same": found.same,
        "max_parallelism": {"before": found.max_parallelism[0], "after": found.max_parallelism[1]},
        "states": [
            {
                "uid": s.uid,
                "state": s.name,
                **attributes(s, "outcome rows_before rows_after added removed changed why"),
                "samples": [
                    {
                        "change": e.change,
                        **{k: plain(v) for k, v in e.place.items()},
                        "before": plain(e.before),
                        "after": plain(e.after),
                    }
                    for e in s.samples
                ],
            }
            for s in found.states
        ],
        "positions": [asdict(each) for each in found.positions],
        "watermarks": [asdict(each) for each in found.watermarks],
    }


def edited_json(made: Edited) -> dict[str, Any]:
    """An edited savepoint."""
    return asdict(made)


def gc_json(leftovers: Leftovers, dry_run: bool) -> dict[str, Any]:
    """The leftovers of dead runs."""
    return {
        "removed": not dry_run,
        "bytes": leftovers.bytes,
        "leftovers": [asdict(each) for each in leftovers.found],
        "skipped": [{"job": name, "why": why} for name, why in leftovers.skipped.items()],
        "unpublished": [{"job": name, "what": what} for name, what in leftovers.unpublished.items()],
    }


def recovery_json(found: Recovery) -> dict[str, Any]:
    """The checkpoint or savepoint that a job resumes from, and the loss."""
    plan = found.plan
    return {
        "job": found.job,
        "outcome": found.outcome,
        "from": None if plan.chosen is None else asdict(plan.chosen),
        "epoch": None if found.start is None else found.start.epoch,
        "lost": asdict(plan.lost),
        "looked": [asdict(each) for each in plan.checked],
        "set_aside": list(plan.fenced),
    }
