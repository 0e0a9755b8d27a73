"""Checks before a job's first commit whether every host can run its tasks and every sink can write its elements. Without these
checks, a mistake would restart the job for ever.

A dry run computes an epoch without input or state on an engine that has not run the job yet, and drops its result. It warms up
the engine, because Spark's first job on a new session takes a second longer than later ones. If a function of the program fails
to open, the dry run fails before the program leads the job.
"""

from __future__ import annotations

import logging
import pickle
import platform
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from forkpoint.driver.commit.manifests import raise_failure
from forkpoint.driver.run.executor import Executor
from forkpoint.errors import ConfigError, ForkpointError, GraphError, of_sink
from forkpoint.graph.job import JobGraph
from forkpoint.graph.specs import SinkSpec
from forkpoint.runtime.exchange.control import EpochContext, JobSpec, decode_commit
from forkpoint.runtime.tasks.preflight import (
    MAX_CLOCK_SKEW_MS,
    PACKAGES,
    Finding,
    Probe,
    connectors_in_use,
    decode_finding,
    marker,
    probe_file,
    storage_variables,
    try_host,
    versions,
)
from forkpoint.storage.base import Storage

log = logging.getLogger("forkpoint")


@dataclass(frozen=True)
class HostReport:
    """The problems of one host, if any."""

    host: str
    problems: tuple[str, ...]


def check_hosts(executor: Executor, storage: Storage, graph: JobGraph, local_dir: str) -> None:
    """Check every host that runs tasks. Raises a ConfigError that names hosts, problems and remedies."""
    if not executor.has_other_hosts:
        return
    sinks = {operator.uid: operator.spec.sink for operator in graph.sinks if isinstance(operator.spec, SinkSpec)}
    directories = {uid: sink.shared_directory for uid, sink in sinks.items() if sink.shared_directory is not None}
    reports = try_hosts(executor, storage, directories, local_dir)
    found = [f"\n  {report.host} {problem}" for report in reports for problem in report.problems]
    if found:
        raise ConfigError("the job cannot run on these hosts:" + "".join(dict.fromkeys(found)))
    log.info("preflight: %s can run the job", ", ".join(sorted({report.host for report in reports})))


def check_sinks(graph: JobGraph) -> None:
    """Ask sinks whether they can write their elements. Raises ConfigError or GraphError."""
    for operator in graph.sinks:
        for edge in operator.inputs:
            if not isinstance(operator.spec, SinkSpec) or edge.type is None:
                continue
            try:
                operator.spec.sink.check_type(edge.type)
            except (ConfigError, GraphError) as error:
                raise of_sink(operator.uid, error) from error
            except ForkpointError as error:
                log.info("%s. The first epoch will tell whether it can be written to", of_sink(operator.uid, error))


def try_hosts(executor: Executor, storage: Storage, directories: dict[str, str], local_dir: str) -> list[HostReport]:
    """Run the checks on all hosts. ``directories``: to be shared by all hosts, by the uid of their sink."""
    token = uuid.uuid4().hex
    with _probe_files(storage, directories, token):
        sent_ms = _now_ms()
        probe = Probe(
            token,
            storage.url,
            storage_variables(storage.url),
            local_dir,
            directories,
            platform.python_version(),
            versions([*PACKAGES, *connectors_in_use()]),
            sent_ms,
        )
        found = executor.run_on_hosts(try_host, msgspec.msgpack.encode(probe))
        answered_ms = _now_ms()
    return [_report(decode_finding(blob), sent_ms, answered_ms) for blob in found]


def _report(finding: Finding, sent_ms: int, answered_ms: int) -> HostReport:
    skew_ms = max(sent_ms - finding.now_ms, finding.now_ms - answered_ms, 0)
    clock = []
    if skew_ms > MAX_CLOCK_SKEW_MS:
        clock = [f"has a clock that differs by {skew_ms / 1000:.0f} s from the driver's; synchronize them (NTP)"]
    return HostReport(finding.host, (*finding.problems, *clock))


@contextmanager
def _probe_files(storage: Storage, directories: dict[str, str], token: str) -> Iterator[None]:
    """A context with the files that all hosts must see."""
    markers = [Path(directory) / marker(token) for directory in set(directories.values())]
    try:
        storage.create(probe_file(token), token.encode())
        for file in markers:
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(token.encode())
            except OSError as error:
                raise ConfigError(f"the driver cannot write to {file.parent}, the directory of a sink: {error}") from error
        yield
    finally:
        for file in markers:
            with suppress(OSError):
                file.unlink()
        storage.delete(probe_file(token))


def _now_ms() -> int:
    return time.time_ns() // 10**6


_EMPTY_PLAN = pickle.dumps([], protocol=5)


def dry_run(executor: Executor, layout: JobSpec) -> None:
    """Compute one epoch without input or state; raises the errors of its tasks. ``layout``: used by this dry run alone, which
    removes its stores."""
    executor.start(replace(layout, known_states={}))
    context = EpochContext(
        generation=0,
        epoch=1,
        committed=0,
        processing_time_ms=0,
        drain=False,
        previous={},
        splits={},
        watermarks={},
        snapshot_subtasks=[],
    )
    reads_natively = any(source not in layout.graph.frame_sources for source in layout.graph.sources)
    try:
        blobs = executor.run_epoch(context, [_EMPTY_PLAN] * (layout.parallelism if reads_natively else 0))
        raise_failure([decode_commit(blob) for blob in blobs])
    finally:
        executor.close()
