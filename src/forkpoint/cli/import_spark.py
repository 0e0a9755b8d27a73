"""The command that makes a savepoint of the checkpoint of a Structured Streaming query."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import click

from forkpoint.api.configuration import parse_duration_ms
from forkpoint.cli import text
from forkpoint.cli.edit import pairs
from forkpoint.cli.output import TextOutput
from forkpoint.cli.savepoints import totals
from forkpoint.cli.settings import Command, current
from forkpoint.functions import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    WindowAssigner,
)
from forkpoint.savepoint.catalog import free_label
from forkpoint.savepoint.naming import new_savepoint_id
from forkpoint.state_processor.spark_import import (
    CheckpointFound,
    ImportedCheckpoint,
    import_spark_checkpoint,
    inspect_spark_checkpoint,
)
from forkpoint.state_processor.spark_shapes import ImportedOperator, ImportedState
from forkpoint.storage.places import absolute, plain_place

Pairs = Sequence[tuple[str, str]]
_ONLY = "state"


@click.command("import-spark-checkpoint", cls=Command)
@click.argument("path")
@click.option("--dry-run", is_flag=True, help="Only show what is there: sources, operators, states, columns, rows.")
@click.option("--job", metavar="NAME", help="The job that the savepoint is for. Needed but for --dry-run.")
@click.option("--to", metavar="PATH|URL", help="The savepoint's directory. [default: a new one below the state root]")
@click.option(
    "--source", "sources", metavar="INDEX=UID", multiple=True, callback=pairs,
    help="The uid of a source, by its place in the plan or its name; repeatable. [default: source, source-0 …]",
)  # fmt: skip
@click.option(
    "--operator", "operators", metavar="ID=UID[:STATE]", multiple=True, callback=pairs,
    help="The uid of a stateful operator, and the name of its only state; repeatable. [default: <Spark's name>-ID:state]",
)  # fmt: skip
@click.option(
    "--state", "names", metavar="ID.NAME=STATE", multiple=True, callback=pairs,
    help="Another name for a state (a variable of transformWithState); repeatable.",
)  # fmt: skip
@click.option(
    "--key", "keys", metavar="ID=SQL", multiple=True, callback=pairs,
    help="An operator's keys, over its columns. [default: the key's only column, else a record of all]",
)  # fmt: skip
@click.option(
    "--value", "values", metavar="ID[.NAME]=SQL", multiple=True, callback=pairs,
    help="A state's values, over its columns. [default: its only column, else a record of all]",
)  # fmt: skip
@click.option(
    "--window", "windows", metavar="ID=SIZE[,SLIDE]", multiple=True, callback=pairs,
    help="The groups of ID are windows, '10 min', '10 min,5 min' or 'session 30 s', and become those of a window operator.",
)  # fmt: skip
@click.option(
    "--ttl", "ttls", metavar="ID.NAME=DURATION", multiple=True, callback=pairs, help="How long a state's entries live."
)
@click.option("--skip", metavar="ID", type=int, multiple=True, help="Leave out an operator's state; repeatable.")
@click.option(
    "--split", "splits", metavar="NAME", multiple=True, default=("0",),
    help="A split that gets the query's watermark, for programs that say split=; repeatable. [default: the only one]",
)  # fmt: skip
@click.option(
    "--batch", metavar="N", type=click.IntRange(min=0), help="An earlier batch. [default: the last committed]"
)
@click.option("--max-parallelism", metavar="N", type=click.IntRange(1, 32768), default=128, show_default=True)
@click.option("--conf", "confs", metavar="NAME=VALUE", multiple=True, callback=pairs, help="A setting of Spark's.")
@click.option("--label", metavar="L", help="A label for the savepoint.")
@click.option("--note", metavar="N", help="A note.")
def import_spark(
    path: str,
    dry_run: bool,
    job: str | None,
    to: str | None,
    sources: Pairs,
    operators: Pairs,
    names: Pairs,
    keys: Pairs,
    values: Pairs,
    windows: Pairs,
    ttls: Pairs,
    skip: Sequence[int],
    splits: Sequence[str],
    batch: int | None,
    max_parallelism: int,
    confs: Pairs,
    label: str | None,
    note: str | None,
) -> None:
    """Make a savepoint of the checkpoint at PATH of a Structured Streaming query, and print its path.

    The query has to be stopped. Its checkpoint stays as it is. Sources go on right behind the last batch committed; state of
    aggregations, deduplication, transformWithState and applyInPandasWithState becomes that of operators.
    """
    if job is None and not dry_run:
        raise click.UsageError("say for which job: --job NAME; or --dry-run, to see what is there")
    settings = current()
    place = absolute(path)
    session = _session(confs)
    if dry_run or job is None:
        found = inspect_spark_checkpoint(place, spark=session, batch=batch)
        settings.output.result(_found_json(found), lambda out: _show(out, found))
        return
    chosen = _operators(operators, names, keys, values, windows, ttls)
    if label is not None:
        free_label(settings.state_root.storage, job, label)
    savepoint_id = new_savepoint_id()
    target = settings.state_root.new_savepoint(job, savepoint_id, to)
    with settings.output.progress("importing") as progress:
        made = import_spark_checkpoint(
            place, target, job=job, sources=dict(sources) or None, operators=chosen, skip=skip, splits=splits, batch=batch,
            max_parallelism=max_parallelism, label=label, note=note, savepoint_id=savepoint_id, spark=session, progress=progress,
        )  # fmt: skip
    for remark in made.remarks:
        settings.output.remark(f"Note: {remark}")
    settings.output.result(_made_json(made), lambda out: _show_made(out, made))


def _session(confs: Pairs) -> Any:
    from forkpoint.spark.session import get_session

    return get_session(dict(confs))


# -- what the options say


def _operators(
    operators: Pairs, names: Pairs, keys: Pairs, values: Pairs, windows: Pairs, ttls: Pairs
) -> dict[int, ImportedOperator | str]:
    found: dict[int, ImportedOperator] = {}
    for name, uid in operators:
        uid, _, state = uid.partition(":")
        states = {_ONLY: ImportedState(state)} if state else {}
        found[_number(name, "--operator")] = ImportedOperator(uid, states)
    for number, key in ((_number(name, "--key"), sql) for name, sql in keys):
        found[number] = replace(_known(found, number, "--key"), key=key)
    for number, window in ((_number(name, "--window"), size) for name, size in windows):
        found[number] = replace(_known(found, number, "--window"), window=_window(window))
    for option, given, change in _changes(names, values, ttls):
        for name, value in given:
            first, _, state = name.partition(".")
            number = _number(first, option)
            known = _known(found, number, option)
            old = known.states.get(state or _ONLY, ImportedState())
            found[number] = replace(known, states={**known.states, state or _ONLY: change(old, value)})
    return dict(found)


Change = Callable[[ImportedState, str], ImportedState]


def _changes(names: Pairs, values: Pairs, ttls: Pairs) -> Iterator[tuple[str, Pairs, Change]]:
    yield "--state", names, lambda old, value: replace(old, name=value)
    yield "--value", values, lambda old, value: replace(old, value=value)
    yield "--ttl", ttls, lambda old, value: replace(old, ttl=_duration(value))


def _number(name: str, option: str) -> int:
    if not name.isdigit():
        raise click.UsageError(f"{option}: {name!r} is no operator's id; --dry-run shows them")
    return int(name)


def _known(found: Mapping[int, ImportedOperator], number: int, option: str) -> ImportedOperator:
    if number not in found:
        raise click.UsageError(f"{option} {number}=…: say the operator's uid, too: --operator {number}=UID")
    return found[number]


def _window(text: str) -> WindowAssigner:
    if text.startswith("session "):
        return EventTimeSessionWindows.with_gap(_duration(text.removeprefix("session ")))
    size, comma, slide = text.partition(",")
    if comma:
        return SlidingEventTimeWindows.of(_duration(size), _duration(slide))
    return TumblingEventTimeWindows.of(_duration(size))


def _duration(text: str) -> timedelta:
    return timedelta(milliseconds=parse_duration_ms("a duration", text.strip()))


# -- showing


def _found_json(found: CheckpointFound) -> dict[str, Any]:
    log = found.log
    return {
        "path": log.url, "query": log.query, "batch": log.batch, "unfinished_batch": log.unfinished,
        "watermark_ms": log.next_watermark_ms or None, "provider": log.provider, "offset_log": log.version,
        "sources": [{"index": s.index, "name": s.name, "offset": s.offset} for s in log.sources],
        "operators": [
            {
                "id": operator.id, "name": operator.name, "partitions": operator.partitions,
                "unreadable": operator.unreadable,
                "states": [
                    {"name": s.name, "kind": s.kind, "rows": s.rows, "key": dict(s.key_columns), "columns": dict(s.columns)}
                    for s in found.states if s.operator == operator.id
                ],
            }
            for operator in found.operators
        ],
    }  # fmt: skip


def _show(out: TextOutput, found: CheckpointFound) -> None:
    log = found.log
    facts = [f"query {log.query}, batch {log.batch}", f"state in {log.provider}", f"offset log {log.version}"]
    if log.next_watermark_ms:
        facts.append(f"watermark {text.watermark(log.next_watermark_ms)}")
    out.line(", ".join(facts))
    if log.unfinished is not None:
        out.line(f"batch {log.unfinished} was begun and not committed; it does not count")
    out.line()
    out.table(["SOURCE", "NAME", "OFFSET"], [[str(s.index), s.name, s.offset or "-"] for s in log.sources])
    out.line()
    names = {operator.id: operator.name for operator in found.operators}
    out.table(
        ["OPERATOR", "SPARK'S NAME", "STATE", "KIND", "KEY", "COLUMNS", "ROWS"],
        [[str(s.operator), names[s.operator], s.name, s.kind, _columns(s.key_columns), _columns(s.columns) or "-",
          text.number(s.rows)] for s in found.states],
        right=("ROWS",),
    )  # fmt: skip
    for operator in found.operators:
        if operator.unreadable is not None:
            out.line(f"operator {operator.id}: {operator.unreadable}; --skip {operator.id}")


def _columns(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {of}" for name, of in columns.items())


def _made_json(made: ImportedCheckpoint) -> dict[str, Any]:
    savepoint = made.savepoint.metadata
    entries, size = totals(savepoint)
    return {
        "savepoint": plain_place(made.savepoint.path), "id": savepoint.id, "job": savepoint.job, "batch": made.log.batch,
        "entries": entries, "bytes": size, "sources": list(savepoint.sources),
        "operators": [operator.uid for operator in savepoint.operators], "remarks": list(made.remarks),
    }  # fmt: skip


def _show_made(out: TextOutput, made: ImportedCheckpoint) -> None:
    out.line(plain_place(made.savepoint.path))
