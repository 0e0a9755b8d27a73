"""Runs the tasks of an epoch sequentially in this process."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from forkpoint import logs
from forkpoint.checkpoint.manifest import SourcePosition
from forkpoint.driver.run.executor import OnBatch, Streams
from forkpoint.errors import ConfigError, EpochInterrupted, JobFailed
from forkpoint.graph.job import JobGraph
from forkpoint.local.archives import Archives
from forkpoint.local.interrupts import Interruptible
from forkpoint.runtime.exchange.control import CatchUp, EpochContext, JobSpec, divide
from forkpoint.runtime.exchange.wire import ChunkRow, commits_in, inboxes
from forkpoint.runtime.tasks.background_process import BackgroundProcess
from forkpoint.runtime.tasks.entry_points import notify_subtask, run_source_task, run_subtask
from forkpoint.runtime.tasks.preparation import catch_ups, preparations, prepare_store, remove_stores
from forkpoint.runtime.tasks.task_log import background_task_log
from forkpoint.runtime.tasks.worker import drop_worker
from forkpoint.types import TypeInformation, dumps


class LocalExecutor:
    """The executor of the local engine. Stages exchange the same bytes as on Spark."""

    def __init__(self, archives: str = "") -> None:
        self._archives = Archives(archives)
        self._spec: JobSpec | None = None
        self._interrupted = False
        self._epoch = Interruptible()
        self._background = BackgroundProcess()

    def start(self, spec: JobSpec) -> None:
        self._end()
        # Serialized as for a cluster, so that a program that works locally also works on a cluster.
        self._spec = pickle.loads(dumps(replace(spec, logging=logs.of_tasks_here())))
        self._interrupted = False

    def run_epoch(self, ctx: EpochContext, source_tasks: Sequence[bytes], frame: Any = None) -> list[bytes]:
        spec = self._spec
        assert spec is not None
        with self._interruptible(f"epoch {ctx.epoch}"):
            return self._run_epoch(spec, ctx, source_tasks)

    @contextmanager
    def _interruptible(self, work: str) -> Iterator[None]:
        self._interrupted = False
        try:
            with self._archives.entered(), self._epoch.within():
                yield
        except (Exception, EpochInterrupted) as error:
            if not self._interrupted:
                raise
            raise JobFailed(f"{work} was interrupted") from error

    def _run_epoch(self, spec: JobSpec, ctx: EpochContext, source_tasks: Sequence[bytes]) -> list[bytes]:
        rows: list[ChunkRow] = []
        common, parts = divide(ctx, spec.parallelism)
        contexts = [part.joined(common, subtask) for subtask, part in enumerate(parts)]
        for task, plan in enumerate(source_tasks):
            rows.extend(run_source_task(spec, common, task, plan))
            self._raise_if_interrupted()
        for stage in range(1, spec.graph.stages + 1):
            inbox_of = inboxes(rows, spec.parallelism)
            rows = []
            for subtask, inbox in enumerate(inbox_of):
                rows.extend(run_subtask(spec, contexts[subtask], stage, subtask, inbox))
                self._raise_if_interrupted()
        return [blob for _, _, _, blob in commits_in(rows)]

    def notify(self, ctx: EpochContext) -> None:
        spec = self._spec
        assert spec is not None
        with self._interruptible(f"the notification of epoch {ctx.committed}"):
            common, parts = divide(ctx, spec.parallelism)
            for subtask, part in enumerate(parts):
                notify_subtask(spec, part.joined(common, subtask), subtask)

    def _raise_if_interrupted(self) -> None:
        if self._interrupted:
            raise EpochInterrupted

    def prepare(self, spec: JobSpec, epoch: int) -> list[CatchUp]:
        return catch_ups(self.run_tasks(prepare_store, preparations(spec, epoch), "prepare stores"))

    def discard(self, spec: JobSpec) -> None:
        remove_stores(spec.local_dir)

    def run_tasks(self, fn: Callable[[bytes], bytes], args: Sequence[bytes], description: str) -> list[bytes]:
        about, done = logs.about_here(), []
        for arg in args:
            with background_task_log(logs.of_tasks_here(), about):
                done.append(fn(arg))
        return done

    run_beside_epochs = run_tasks

    def run_in_background(self, fn: Callable[[bytes], bytes], args: Sequence[bytes], description: str) -> list[bytes]:
        return self._background.run(fn, args)

    @property
    def has_other_hosts(self) -> bool:
        return False

    def run_on_hosts(self, fn: Callable[[bytes], bytes], arg: bytes) -> list[bytes]:
        return self.run_tasks(fn, [arg], "try hosts")

    def start_streams(
        self,
        graph: JobGraph,
        positions: Mapping[str, SourcePosition],
        on_batch: OnBatch,
        stops: Mapping[str, SourcePosition] | None = None,
    ) -> Streams:
        uids = ", ".join(repr(o.uid) for o in graph.frame_sources)
        raise ConfigError(f"sources {uids} read Spark DataFrames, which need the Spark engine; run with --engine spark")

    def staged_frame(self, paths: Sequence[str], type: TypeInformation) -> Any:
        raise ConfigError("a sink that takes Spark DataFrames needs the Spark engine; run with --engine spark")

    def interrupt(self) -> None:
        self._interrupted = True
        self._epoch.interrupt()

    def abandon(self) -> None:
        self.interrupt()

    def activity(self) -> str | None:
        return self._epoch.activity()

    def close(self) -> None:
        self._background.close()
        self._end()

    def _end(self) -> None:
        if self._spec is not None:
            drop_worker(self._spec.run)
            remove_stores(self._spec.local_dir)
            self._archives.remove()
            self._spec = None
