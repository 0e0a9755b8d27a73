"""Savepoints out of the checkpoints of Structured Streaming queries. Loads Spark when it is called."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forkpoint.checkpoint.manifest import Parent
from forkpoint.errors import ConfigError
from forkpoint.graph.options import check_max_parallelism
from forkpoint.savepoint.tasks import Progress, no_progress
from forkpoint.state_processor.drafts import Draft, DraftOperator, write_draft
from forkpoint.state_processor.reader import SavepointReader
from forkpoint.state_processor.spark_shapes import ImportedOperator, StateFound, counted, shaped
from forkpoint.storage.base import open_storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from forkpoint.spark.query_log import QueryLog
    from forkpoint.spark.query_state import QueryOperator

DEFAULT_SPLITS = ("0",)  # of from_dataframe() without split=


@dataclass(frozen=True)
class CheckpointFound:
    """What a checkpoint holds: its log, its stateful operators, and their states with the number of rows."""

    log: QueryLog
    operators: Sequence[QueryOperator]
    states: Sequence[StateFound]


@dataclass(frozen=True)
class ImportedCheckpoint:
    """A savepoint made of a checkpoint, and what to know about it. ``remarks``: sentences for people."""

    savepoint: SavepointReader
    log: QueryLog
    remarks: Sequence[str]


def inspect_spark_checkpoint(
    path: str | os.PathLike[str], *, spark: SparkSession | None = None, batch: int | None = None
) -> CheckpointFound:
    """What the checkpoint of a Structured Streaming query holds. Nothing is written.

    Raises ConfigError for what is no such checkpoint, StorageError where Spark cannot read its state.
    """
    from forkpoint.spark.query_log import read_log
    from forkpoint.spark.query_state import HadoopFiles, operators, reading
    from forkpoint.spark.session import get_session

    session, root = spark or get_session(), _url(path)
    with reading(session):
        log = read_log(HadoopFiles(session, root), batch)
    with reading(session, log):
        found = operators(session, root, log)
        states = [counted(state) for operator in found for state in operator.states]
    return CheckpointFound(log, found, states)


def import_spark_checkpoint(
    path: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    job: str,
    sources: Mapping[int | str, str] | str | None = None,
    operators: Mapping[int, ImportedOperator | str] | None = None,
    skip: Sequence[int] = (),
    splits: Sequence[str] = DEFAULT_SPLITS,
    batch: int | None = None,
    max_parallelism: int = 128,
    label: str | None = None,
    note: str | None = None,
    savepoint_id: str | None = None,
    spark: SparkSession | None = None,
    progress: Progress = no_progress,
) -> ImportedCheckpoint:
    """Make a savepoint, in the directory ``target``, of the checkpoint of a Structured Streaming query that was stopped.

    ``sources``: uids by index in the plan, or by name; of an only source its uid. They become positions of
    ``from_dataframe`` sources, which go on right behind the last batch committed (or ``batch``). ``operators``: by Spark's
    ids, an ImportedOperator or a uid; without it all come, as ``<name>-<id>``. ``skip``: ids of operators to leave out.
    ``splits``: names of the splits that get the query's watermark, for programs that say ``split=``. ``spark``: the session
    to read with, which must reach both directories from all its executors; by default one is started.

    Raises ConfigError for what does not fit together, StorageError where Spark cannot read, EditRefused where rows don't
    fit the types given, AlreadyExists if there is a savepoint.
    """
    from forkpoint.spark.background_tasks import run_tasks_on
    from forkpoint.spark.query_log import committed, positions, read_log
    from forkpoint.spark.query_state import HadoopFiles, is_running, reading
    from forkpoint.spark.query_state import operators as read_operators
    from forkpoint.spark.session import get_session

    check_max_parallelism(max_parallelism)
    session, root = spark or get_session(), _url(path)
    with reading(session):
        files = HadoopFiles(session, root)
        log = read_log(files, batch)
        if is_running(session, log.query):
            raise ConfigError(f"{log.url}: its query {log.query} is running; stop it first")
        before = committed(files)[-1]
        uids = _source_uids(log, sources)
        found_positions = positions(files, log, splits, uids)
    with reading(session, log):
        found = read_operators(session, root, log)
        wanted = _chosen(found, operators or {}, skip)
        planned = shaped(found, wanted)
        draft = Draft(
            job=job, run="spark-checkpoint", base=None, parent=Parent(), max_parallelism=max_parallelism, parallelism=1,
            sources=found_positions, input_watermarks={},
            watermarks={uid: log.watermark_ms - 1 for uid in planned if log.watermark_ms > 0},
            operators=[DraftOperator(uid, uid, "", states) for uid, states in planned.items()],
            label=label, note=note or f"imported from {log.url}, batch {log.batch}", savepoint_id=savepoint_id,
        )  # fmt: skip
        opened = write_draft(draft, open_storage(target), run_tasks_on(session), progress)
    remarks = _committed_meanwhile(log, before, committed(files)[-1])
    remarks += [*_remarks(log, uids, found, skip), *_immortal(found, wanted)]
    return ImportedCheckpoint(SavepointReader(opened), log, remarks)


def _url(path: str | os.PathLike[str]) -> str:
    place = os.fspath(path)
    return place if ":" in place.partition("/")[0] else "file://" + os.path.abspath(place)


def _source_uids(log: QueryLog, sources: Mapping[int | str, str] | str | None) -> dict[int, str]:
    known = ", ".join(f"{s.index}" if s.name == str(s.index) else f"{s.index} ({s.name})" for s in log.sources)
    if isinstance(sources, str):
        if len(log.sources) != 1:
            raise ConfigError(
                f"{log.url}: the query has {len(log.sources)} sources ({known}); say a uid for each: INDEX=UID"
            )
        return {0: sources}
    if sources is None:
        alone = len(log.sources) == 1
        return {source.index: "source" if alone else f"source-{source.name}" for source in log.sources}
    by_name = {name: source.index for source in log.sources for name in (source.index, str(source.index), source.name)}
    found: dict[int, str] = {}
    for name, uid in sources.items():
        if name not in by_name:
            raise ConfigError(f"{log.url}: the query has no source {name!r}; it has {known}")
        if uid in found.values() or by_name[name] in found:
            raise ConfigError(f"source {name!r} and uid {uid!r}: one of them is given twice")
        found[by_name[name]] = uid
    return found


def _chosen(
    found: Sequence[QueryOperator], operators: Mapping[int, ImportedOperator | str], skip: Sequence[int]
) -> dict[int, ImportedOperator]:
    """By id, what each operator becomes. Raises ConfigError for ids that are not there, and for what can't be read."""
    known = {operator.id: operator for operator in found}
    for number in (*operators, *skip):
        if number not in known:
            listed = ", ".join(f"{each.id} ({each.name})" for each in found) or "none"
            raise ConfigError(f"the query has no stateful operator {number}; it has {listed}")
    wanted: dict[int, ImportedOperator] = {}
    for operator in found:
        given = operators.get(operator.id, f"{operator.name}-{operator.id}")
        if operator.id in skip:
            continue
        if operator.unreadable is not None:
            raise ConfigError(
                f"operator {operator.id}: {operator.unreadable}; leave it out (skip {operator.id}), and its state starts empty"
            )
        wanted[operator.id] = ImportedOperator(given) if isinstance(given, str) else given
    return wanted


def _committed_meanwhile(log: QueryLog, before: int, now: int) -> list[str]:
    if now == before:
        return []
    return [
        f"the query committed batch {now} meanwhile: it is running. This savepoint is of batch {log.batch}; stop the query and "
        "import again, or both will do the rest"
    ]


def _remarks(log: QueryLog, uids: Mapping[int, str], found: Sequence[QueryOperator], skip: Sequence[int]) -> list[str]:
    remarks = []
    if log.unfinished is not None:
        remarks.append(
            f"batch {log.unfinished} was begun and not committed: its input will be read by the new job, and what it has written "
            "already comes a second time unless the sink tells"
        )
    remarks += [
        f"source {source.index} ({source.name}) has no uid and is left out"
        for source in log.sources
        if source.index not in uids
    ]
    remarks += [f"operator {each.id} ({each.name}) is left out" for each in found if each.id in skip]
    return remarks


def _immortal(found: Sequence[QueryOperator], wanted: Mapping[int, ImportedOperator]) -> list[str]:
    """What to say of entries that Spark would let expire, and that nobody said the time to live of."""
    named = (
        (state, wanted[operator.id].states.get(state.name))
        for operator in found
        if operator.id in wanted
        for state in operator.states
        if state.expires
    )
    return [
        f"{state.where} expires in Spark, but how long its entries live is not on record: say ttl, or they stay for ever"
        for state, given in named
        if given is None or given.ttl is None
    ]
