"""Makes savepoints from checkpoints of Structured Streaming queries. Loads Spark when it is called."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forkpoint.errors import ConfigError
from forkpoint.graph.options import check_max_parallelism
from forkpoint.savepoint.edit.drafts import Draft, DraftOperator, write_draft
from forkpoint.savepoint.format.tasks import Progress, no_progress
from forkpoint.savepoint.inspect.reader import SavepointReader
from forkpoint.storage.base import open_storage
from forkpoint_spark_checkpoints.shapes import ImportedOperator, StateFound, counted, shaped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from forkpoint_spark_checkpoints.query_log import QueryLog
    from forkpoint_spark_checkpoints.query_state import QueryOperator

DEFAULT_SPLITS = ("0",)  # of from_dataframe() without split=


@dataclass(frozen=True)
class CheckpointFound:
    """The contents of a checkpoint: its log, its stateful operators, and their states with row counts."""

    log: QueryLog
    operators: Sequence[QueryOperator]
    states: Sequence[StateFound]


@dataclass(frozen=True)
class ImportedCheckpoint:
    """A savepoint made from a checkpoint. ``remarks``: sentences for people."""

    savepoint: SavepointReader
    log: QueryLog
    remarks: Sequence[str]


def inspect_spark_checkpoint(
    path: str | os.PathLike[str], *, spark: SparkSession | None = None, batch: int | None = None
) -> CheckpointFound:
    """The contents of a Structured Streaming query's checkpoint. Writes nothing.

    Raises ConfigError if it is not such a checkpoint, StorageError if Spark cannot read its state.
    """
    from forkpoint.spark.session import get_session
    from forkpoint_spark_checkpoints.query_log import read_log
    from forkpoint_spark_checkpoints.query_state import HadoopFiles, operators, reading

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
    """Make a savepoint in the directory ``target`` from the checkpoint of a stopped Structured Streaming query.

    ``sources``: uids by index in the plan or by name, or the uid of the only source. They become positions of
    ``from_dataframe`` sources, which resume after the last committed batch (or ``batch``). ``operators``: by Spark's ids, an
    ImportedOperator or a uid; by default all, with uids ``<name>-<id>``. ``skip``: ids of operators to leave out.
    ``splits``: names of the splits that get the query's watermark, for programs with ``split=``. ``spark``: the session to
    read with, whose executors must be able to reach both directories. By default, starts a session.

    Raises ConfigError if the arguments and the checkpoint do not match, StorageError if Spark cannot read, EditRefused if
    rows do not fit the given types, AlreadyExists if the savepoint exists.
    """
    from forkpoint.spark.background_tasks import run_tasks_on
    from forkpoint.spark.session import get_session
    from forkpoint_spark_checkpoints.query_log import committed, positions, read_log
    from forkpoint_spark_checkpoints.query_state import HadoopFiles, is_running, reading
    from forkpoint_spark_checkpoints.query_state import operators as read_operators

    check_max_parallelism(max_parallelism)
    session, root = spark or get_session(), _url(path)
    with reading(session):
        files = HadoopFiles(session, root)
        log = read_log(files, batch)
        if is_running(session, log.query):
            raise ConfigError(f"{log.url}: its query {log.query} is running; stop it first")
        before = committed(files)[-1]
        uids = _source_uids(log, sources)
        source_positions = positions(files, log, splits, uids)
    with reading(session, log):
        found = read_operators(session, root, log)
        wanted = _choose(found, operators or {}, skip)
        planned = shaped(found, wanted)
        draft = Draft(
            job,
            max_parallelism,
            1,
            "spark-checkpoint",
            sources=source_positions,
            operators={uid: DraftOperator(uid, states={s.info.name: s for s in states}) for uid, states in planned.items()},
            watermarks={uid: log.watermark_ms - 1 for uid in planned if log.watermark_ms > 0},
            label=label,
            note=note or f"imported from {log.url}, batch {log.batch}",
            savepoint_id=savepoint_id,
        )
        opened = write_draft(draft, open_storage(target), run_tasks_on(session), progress)
    remarks = [*_remarks(log, before, committed(files)[-1], uids), *_operator_remarks(found, wanted)]
    return ImportedCheckpoint(SavepointReader(opened), log, remarks)


def _url(path: str | os.PathLike[str]) -> str:
    place = os.fspath(path)
    return place if ":" in place.partition("/")[0] else "file://" + os.path.abspath(place)


def _source_uids(log: QueryLog, sources: Mapping[int | str, str] | str | None) -> dict[int, str]:
    known = ", ".join(f"{s.index}" if s.name == str(s.index) else f"{s.index} ({s.name})" for s in log.sources)
    if isinstance(sources, str):
        if len(log.sources) != 1:
            raise ConfigError(f"{log.url}: the query has {len(log.sources)} sources ({known}); give a uid for each: INDEX=UID")
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


def _choose(
    found: Sequence[QueryOperator], operators: Mapping[int, ImportedOperator | str], skip: Sequence[int]
) -> dict[int, ImportedOperator]:
    """The operators to import, by id. Raises ConfigError for unknown ids and unreadable operators."""
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


def _remarks(log: QueryLog, before: int, now: int, uids: Mapping[int, str]) -> Iterator[str]:
    if now != before:
        yield (
            f"the query committed batch {now} in the meantime: it is running. This savepoint is of batch {log.batch}; stop the "
            "query and import again, or the query and the job will both process the rest"
        )
    if log.unfinished is not None:
        yield (
            f"batch {log.unfinished} was started but not committed: the new job will read its input again, and the output that "
            "it has already written will appear twice unless the sink deduplicates"
        )
    for source in log.sources:
        if source.index not in uids:
            yield f"source {source.index} ({source.name}) has no uid and is left out"


def _operator_remarks(found: Sequence[QueryOperator], wanted: Mapping[int, ImportedOperator]) -> Iterator[str]:
    for operator in found:
        if operator.id not in wanted:
            yield f"operator {operator.id} ({operator.name}) is left out"
    for operator in found:
        for state in operator.states if operator.id in wanted else ():
            given = wanted[operator.id].states.get(state.name)
            if state.expires and (given is None or given.ttl is None):
                yield (
                    f"{state.where} expires in Spark, but its time to live is not recorded: give ttl, or its entries are kept "
                    "forever"
                )
