"""Computes the state of changed queries again from their input, up to a savepoint, and writes a savepoint with it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from forkpoint.checkpoint.manifest import SourcePosition
from forkpoint.driver.start.program_check import check_program, declared_states
from forkpoint.errors import RestoreRefused
from forkpoint.graph.job import JobGraph
from forkpoint.operations.launch.request import RunRequest
from forkpoint.operations.observer import SILENT, Observer
from forkpoint.operations.roots import StateRoot
from forkpoint.operations.versions.check import inspect_program
from forkpoint.operations.versions.replay import DISCARDED
from forkpoint.operations.versions.trials import Trials, records_read
from forkpoint.relational.definitions.comparison import missing_functions
from forkpoint.relational.definitions.queries import SINK, QueryStates, queries_of, replaced_results, table_of
from forkpoint.savepoint.catalog.listing import find_savepoint
from forkpoint.savepoint.catalog.names import named_savepoint
from forkpoint.savepoint.restore.restore_plan import RestorePlan, render
from forkpoint.state_processor import SavepointReader, SavepointWriter
from forkpoint.storage.places import plain_place

JOB = "recomputed"


@dataclass(frozen=True)
class Recomputed:
    """``savepoint``: the new savepoint's path or URL; ``parent``: the id of the one that it was made from. ``tables``: those
    whose queries were computed again. ``rows``: how many rows were read for that."""

    savepoint: str
    id: str
    job: str
    parent: str
    tables: tuple[str, ...]
    rows: int


def recompute(
    request: RunRequest,
    savepoint: str | None = None,
    *,
    label: str | None = None,
    state_root: str | None = None,
    observer: Observer = SILENT,
) -> Recomputed:
    """Compute the INSERTs of a program again whose queries have changed so much that a savepoint's state does not fit.

    The program reads its sources from their start exactly to the savepoint's positions, without writing to its sinks. A new
    savepoint has the state of these queries, and all else of the old one. The first epoch of a run from it emits the difference
    between the new results and the old ones. ``savepoint``: a path, URL, id or label; by default the job's latest.

    Raises RestoreRefused if nothing needs it, if the old result isn't known any more, or if the sources have not given as many
    rows as to the savepoint's job; and DriverFailed if the program fails.
    """
    root = StateRoot(state_root)
    program = inspect_program(request.app, request.arguments, request.name, root)
    opened = find_savepoint(root.storage, program.name) if savepoint is None else named_savepoint(root.storage, savepoint)
    graph, old, sinks = program.graph, SavepointReader(opened), [sink.uid for sink in program.graph.sinks]
    saved, wanted = (
        queries_of(states, sinks) for states in ([info for state in old.states for info in state.infos], declared_states(graph))
    )
    tables = _tables(check_program(graph, old.metadata, accept_empty=request.restore.accept_empty), saved)
    known = {operator.uid for operator in old.metadata.operators}
    replaced = {
        table: replaced_results(table, saved[table], wanted[table], written=f"{table}{SINK}" in known) for table in tables
    }
    for results in replaced.values():
        check_functions(old, results, {operator.uid: operator.spec.functions for operator in graph.operators})
    savepoint_id, directory = root.new_savepoint(old.job, None, label)
    trial = f"{JOB}-{savepoint_id}"
    try:
        new = _run(request, old, root, trial, observer)
        sources = _sources(graph, tables)
        for uid in sources:
            _check_same_rows(uid, old.positions.get(uid), new.positions[uid])
        writer = SavepointWriter.from_existing_savepoint(old)
        for table in tables:
            replace_query(writer, old, new, saved[table], wanted[table], replaced[table])
        with observer.progress("writing") as report:
            note = f"{', '.join(tables)} computed again from the input"
            made = writer.write(directory, label=label, note=note, savepoint_id=savepoint_id, progress=report)
    finally:
        root.storage.delete_prefix(trial)
    rows = records_read({uid: new.positions[uid] for uid in sources})
    return Recomputed(plain_place(made.path), savepoint_id, made.metadata.job, old.metadata.id, tables, rows)


def replace_query(
    writer: SavepointWriter,
    old: SavepointReader,
    new: SavepointReader,
    before: QueryStates,
    after: QueryStates,
    replaced: Mapping[str, str | None],
) -> None:
    """Replace a query's state in a copy of the savepoint ``old`` by that of the new query in ``new``. ``replaced``: see
    ``replaced_results``."""
    for uid in before.operators:
        writer.remove_operator(uid)
    for uid in after.operators:
        writer.with_operator_of(new, uid)
    for uid, its in replaced.items():
        if its is None:
            writer.with_nothing_replaced(uid)
        else:
            writer.with_replaced(uid, old, its)


def _run(request: RunRequest, old: SavepointReader, root: StateRoot, trial: str, observer: Observer) -> SavepointReader:
    """Run the program from empty state to the savepoint's positions. ``trial``: the directory for its state."""
    with tempfile.TemporaryDirectory(prefix="forkpoint-recompute-") as logs, observer.steps("computing again") as report:
        fresh = replace(request, restore=replace(request.restore, savepoint=None), savepoint_schedule=None)
        fresh = replace(fresh, max_parallelism=old.metadata.max_parallelism)
        trials = Trials.beside(root.storage, StateRoot(f"{root.place.rstrip('/')}/{trial}"), Path(logs), fresh)
        trials.run(JOB, request.app, old.path, DISCARDED, "the program", report)
        taken = trials.savepoint(JOB)
    if taken is None:
        raise RestoreRefused("the program's inputs ended before the savepoint's positions")
    return SavepointReader.read(taken)


def _tables(plan: RestorePlan, saved: Mapping[str, QueryStates]) -> tuple[str, ...]:
    """The tables whose saved state is refused. Raises RestoreRefused if something else is, or nothing."""
    if moved := [f"{old!r} → {new!r}" for old, new in plan.sources.items() if old != new]:
        raise RestoreRefused(
            f"uses of a table have changed places ({', '.join(moved)}), so its positions would be those of others; put them into "
            "the old order, compute it again, and then change it"
        )
    refused = {row: table_of(row.uid, saved) for row in plan.refused}
    if not refused:
        raise RestoreRefused("the savepoint's state fits the program; nothing has to be computed again")
    if others := [row for row, table in refused.items() if table is None]:
        raise RestoreRefused(f"this is not the state of an INSERT, so it cannot be computed again:\n{render(others)}")
    return tuple(dict.fromkeys(table for table in refused.values() if table is not None))


def check_functions(old: SavepointReader, replaced: Mapping[str, str | None], functions: Mapping[str, frozenset[str]]) -> None:
    """Raises RestoreRefused unless a program with these functions, by operator, can compute the replaced results."""
    definitions = {state.uid: state.definition for each in old.states for state in each.infos if state.is_shown}
    for uid, before in replaced.items():
        if before is not None and (missing := missing_functions(definitions[before], functions[uid])):
            raise RestoreRefused(f"operator {before!r}: {missing}")


def _sources(graph: JobGraph, tables: Iterable[str]) -> list[str]:
    """The uids of the sources that these tables' queries read."""
    found = graph.sources_of(graph.by_uid[f"{table}{SINK}"].id for table in tables)
    return [graph.by_id[source].uid for source in sorted(found)]


def _check_same_rows(uid: str, before: SourcePosition | None, now: SourcePosition) -> None:
    """Raises RestoreRefused unless a source has given as many rows as to the savepoint's job."""
    read, again = (0 if each is None else records_read({uid: each}) for each in (before, now))
    if read != again:
        raise RestoreRefused(
            f"source {uid!r} has given {again:,} rows up to the savepoint's position, but {read:,} to the savepoint's job: it "
            "may not keep all of them, or start elsewhere ('scan.startup.mode' must be 'earliest-offset'); the result of these "
            "rows would not be that of all rows. Write it into another table"
        )
