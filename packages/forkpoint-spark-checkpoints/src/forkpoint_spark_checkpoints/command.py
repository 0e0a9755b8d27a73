"""The `import-spark-checkpoint` command."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import click

from forkpoint.cli import text
from forkpoint.cli.names import PlaceType
from forkpoint.cli.options import Pairs, pairs_option
from forkpoint.cli.output import TextOutput
from forkpoint.cli.settings import Command, current
from forkpoint.functions import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    WindowAssigner,
)
from forkpoint.graph.options import UPPER_BOUND_MAX_PARALLELISM
from forkpoint.operations.shapes import attributes
from forkpoint.savepoint.catalog.display import totals
from forkpoint.storage.places import plain_place
from forkpoint.wording import parse_duration_ms
from forkpoint_spark_checkpoints import operations
from forkpoint_spark_checkpoints.importer import CheckpointFound, ImportedCheckpoint
from forkpoint_spark_checkpoints.operations import ImportRequest
from forkpoint_spark_checkpoints.shapes import ImportedOperator, ImportedState

_ONLY = "state"


@click.command("import-spark-checkpoint", cls=Command)
@click.argument("path")
@click.option("--dry-run", is_flag=True, help="Only show sources, operators, and states with their columns and rows.")
@click.option("--job", metavar="NAME", help="The savepoint's job. Required without --dry-run.")
@click.option(
    "--to",
    metavar="PATH|URL",
    type=PlaceType(),
    help="The savepoint's directory. [default: a new one below the state root]",
)
@pairs_option(
    "--source",
    "sources",
    "INDEX=UID",
    "The uid of a source, by its index in the plan or its name; repeatable. [default: source; source-0 … of several]",
)
@pairs_option(
    "--operator",
    "operators",
    "ID=UID[:STATE]",
    "The uid of a stateful operator, and the name of its only state; repeatable. [default: <Spark's name>-ID:state]",
)
@pairs_option("--state", "names", "ID.NAME=STATE", "Rename a state (a variable of transformWithState); repeatable.")
@pairs_option(
    "--key",
    "keys",
    "ID=SQL",
    "An operator's keys, over its columns; repeatable. [default: the only key column, else a record of all]",
)
@pairs_option(
    "--value",
    "values",
    "ID[.NAME]=SQL",
    "A state's values, over its columns; repeatable. [default: its only column, else a record of all]",
)
@pairs_option(
    "--window",
    "windows",
    "ID=SIZE[,SLIDE]",
    "Operator ID groups by window ('10 min', '10 min,5 min' or 'session 30 s') and becomes a window operator; repeatable.",
)
@pairs_option("--ttl", "ttls", "ID.NAME=DURATION", "How long a state's entries live; repeatable.")
@click.option("--skip", metavar="ID", type=int, multiple=True, help="Leave out an operator's state; repeatable.")
@click.option(
    "--split",
    "splits",
    metavar="NAME",
    multiple=True,
    default=("0",),
    help="A split that gets the query's watermark, for programs that pass split=; repeatable. [default: the only one]",
)
@click.option("--batch", metavar="N", type=click.IntRange(min=0), help="An earlier batch. [default: the last committed]")
@click.option(
    "--max-parallelism",
    metavar="N",
    type=click.IntRange(1, UPPER_BOUND_MAX_PARALLELISM),
    default=128,
    show_default=True,
)
@pairs_option("--conf", "confs", "NAME=VALUE", "A Spark setting; repeatable.")
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
    """Make a savepoint from the checkpoint at PATH of a Structured Streaming query, and print its path.

    Stop the query first. Its checkpoint stays unchanged. Sources resume right after the last committed batch; the state of
    aggregations, deduplication, transformWithState and applyInPandasWithState becomes operator state.
    """
    settings = current()
    if dry_run:
        found = operations.inspect_spark_checkpoint(path, batch=batch, spark_settings=confs)
        settings.output.result(_found_json(found), lambda out: _show(out, found))
        return
    if job is None:
        raise click.UsageError("name the savepoint's job with --job NAME, or use --dry-run to see the checkpoint's contents")
    request = ImportRequest(
        path,
        job,
        dict(sources.items()),
        _operators(operators, names, keys, values, windows, ttls),
        skip,
        splits,
        batch,
        max_parallelism,
        label,
        note,
        to,
        confs,
    )
    made = operations.import_spark_checkpoint(request, state_root=settings.given_root, observer=settings.output)
    for remark in made.remarks:
        settings.output.remark(f"Note: {remark}")
    data = _result_json(made)
    settings.output.result(data, lambda out: out.line(data["savepoint"]))


# -- operators, from the options


def _operators(
    operators: Pairs, names: Pairs, keys: Pairs, values: Pairs, windows: Pairs, ttls: Pairs
) -> dict[int, ImportedOperator]:
    found: dict[int, ImportedOperator] = {}
    for name, uid in operators.items():
        uid, _, state = uid.partition(":")
        states = {_ONLY: ImportedState(state)} if state else {}
        found[_number(name, "--operator")] = ImportedOperator(uid, states)
    for name, key in keys.items():
        number, known = _find(found, name, "--key")
        found[number] = replace(known, key=key)
    for name, window in windows.items():
        number, known = _find(found, name, "--window")
        found[number] = replace(known, window=_window(window))
    for option, given, change in _changes(names, values, ttls):
        for name, value in given.items():
            first, _, state = name.partition(".")
            number, known = _find(found, first, option)
            old = known.states.get(state or _ONLY, ImportedState())
            found[number] = replace(known, states={**known.states, state or _ONLY: change(old, value)})
    return found


Change = Callable[[ImportedState, str], ImportedState]


def _changes(names: Pairs, values: Pairs, ttls: Pairs) -> Iterator[tuple[str, Pairs, Change]]:
    yield "--state", names, lambda old, value: replace(old, name=value)
    yield "--value", values, lambda old, value: replace(old, value=value)
    yield "--ttl", ttls, lambda old, value: replace(old, ttl=_duration(value))


def _number(name: str, option: str) -> int:
    if not name.isdigit():
        raise click.UsageError(f"{option}: {name!r} is not an operator id; --dry-run shows the ids")
    return int(name)


def _find(found: Mapping[int, ImportedOperator], name: str, option: str) -> tuple[int, ImportedOperator]:
    number = _number(name, option)
    if number not in found:
        raise click.UsageError(f"{option} {number}=…: give the operator a uid, too: --operator {number}=UID")
    return number, found[number]


def _window(text: str) -> WindowAssigner:
    if text.startswith("session "):
        return EventTimeSessionWindows.with_gap(_duration(text.removeprefix("session ")))
    size, comma, slide = text.partition(",")
    if comma:
        return SlidingEventTimeWindows.of(_duration(size), _duration(slide))
    return TumblingEventTimeWindows.of(_duration(size))


def _duration(text: str) -> timedelta:
    return timedelta(milliseconds=parse_duration_ms("a duration", text.strip()))


# -- output


def _found_json(found: CheckpointFound) -> dict[str, Any]:
    log = found.log
    return {
        "path": log.url,
        "query": log.query,
        "batch": log.batch,
        "unfinished_batch": log.unfinished,
        "watermark_ms": log.next_watermark_ms or None,
        "provider": log.provider,
        "offset_log": log.version,
        "sources": [attributes(source, "index name offset") for source in log.sources],
        "operators": [
            {
                **attributes(operator, "id name partitions unreadable"),
                "states": [
                    {**attributes(s, "name kind rows"), "key": dict(s.key_columns), "columns": dict(s.columns)}
                    for s in found.states
                    if s.operator == operator.id
                ],
            }
            for operator in found.operators
        ],
    }


def _show(out: TextOutput, found: CheckpointFound) -> None:
    log = found.log
    facts = [f"query {log.query}, batch {log.batch}", f"state in {log.provider}", f"offset log {log.version}"]
    if log.next_watermark_ms:
        facts.append(f"watermark {text.watermark(log.next_watermark_ms)}")
    out.line(", ".join(facts))
    if log.unfinished is not None:
        out.line(f"batch {log.unfinished} was started but not committed, so it does not count")
    out.line()
    out.table(["SOURCE", "NAME", "OFFSET"], [[str(s.index), s.name, s.offset or "-"] for s in log.sources])
    out.line()
    names = {operator.id: operator.name for operator in found.operators}
    out.table(
        ["OPERATOR", "SPARK'S NAME", "STATE", "KIND", "KEY", "COLUMNS", "ROWS"],
        [
            [
                str(s.operator),
                names[s.operator],
                s.name,
                s.kind,
                _columns(s.key_columns),
                _columns(s.columns) or "-",
                text.number(s.rows),
            ]
            for s in found.states
        ],
        right=("ROWS",),
    )
    for operator in found.operators:
        if operator.unreadable is not None:
            out.line(f"operator {operator.id}: {operator.unreadable}; --skip {operator.id}")


def _columns(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {of}" for name, of in columns.items())


def _result_json(made: ImportedCheckpoint) -> dict[str, Any]:
    savepoint = made.savepoint.metadata
    entries, size = totals(savepoint)
    return {
        "savepoint": plain_place(made.savepoint.path),
        "id": savepoint.id,
        "job": savepoint.job,
        "batch": made.log.batch,
        "entries": entries,
        "bytes": size,
        "sources": list(savepoint.sources),
        "operators": [operator.uid for operator in savepoint.operators],
        "remarks": list(made.remarks),
    }
