"""The state of a worker process between tasks of a run: stores of subtasks and operator instances."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from forkpoint.checkpoint.paths import JobPaths
from forkpoint.errors import StorageError
from forkpoint.functions import CheckpointListener
from forkpoint.graph.job import JobGraph, Operator
from forkpoint.runtime.exchange.control import EpochContext, JobSpec, UserMetric
from forkpoint.runtime.operators.base import NOT_USERS, OperatorInstance, TaskInfo, user_code, user_failure
from forkpoint.runtime.operators.instances import Checkpointed, RunnableSpec, make_instance
from forkpoint.runtime.tasks.committed_state import Share
from forkpoint.runtime.tasks.measurements import MetricReporter
from forkpoint.runtime.tasks.subtask_store import SubtaskState
from forkpoint.state import HostChanges, Store, StoreKind, WriteBackStore, destroy_store, key_group_range, open_store
from forkpoint.storage.base import Storage, open_storage
from forkpoint.storage.private import make_own_directory


@dataclass
class _Kept:
    instance: OperatorInstance
    listener: CheckpointListener | None
    metrics: MetricReporter
    epoch: int = 0
    attempt: str = ""
    notified: int = 0

    def notify(self, uid: str, committed: int) -> None:
        """Notify the function of a committed epoch, at most once."""
        if self.listener is not None and self.notified < committed:
            self.notified = committed
            try:
                self.listener.notify_checkpoint_complete(committed)
            except NOT_USERS:
                raise
            except BaseException as error:
                raise user_failure(uid, error, f"notify_checkpoint_complete({committed})") from error


@dataclass
class Worker:
    spec: JobSpec
    storage: Storage
    paths: JobPaths
    states: dict[int, SubtaskState] = field(default_factory=dict)
    instances: dict[tuple[int, int], _Kept] = field(default_factory=dict)

    def state(self, subtask: int) -> SubtaskState:
        state = self.states.get(subtask)
        if state is None:
            directory = Path(self.spec.local_dir) / str(subtask)
            make_own_directory(str(directory))
            share = Share(subtask, *key_group_range(subtask, self.spec.parallelism, self.spec.max_parallelism))
            # With other kinds of stores, a process that takes over cannot read the previous process's store anyway.
            shared = self.spec.several_processes and self.spec.store == "lmdb"
            host = HostChanges(directory.with_name(f"{subtask}.changes")) if shared else None
            share_bytes = store_bytes(self.spec.memory_bytes)
            store = open_cache(self.spec.store, directory, share_bytes)
            if self.spec.store != "dict":
                stored = (lambda version: None) if host is None else host.remove
                store = WriteBackStore(store, stored=stored, memory_bytes=share_bytes)
            state = self.states[subtask] = SubtaskState(store, self.storage, self.paths, share, host, self.spec.memory_bytes)
        return state

    def instance(self, operator: Operator, subtask: int, context: EpochContext, attempt: str) -> OperatorInstance:
        """The operator's instance for this subtask. An instance whose last epoch was not accepted has attributes that were never
        committed; with operator state, it is replaced."""
        kept = self.instances.get((operator.id, subtask))
        if kept is not None and (kept.epoch, kept.attempt) == (context.epoch, attempt):
            return kept.instance  # stage 0 calls this for each batch
        kept, accepted = self._at_committed(operator, subtask, context)
        if kept.epoch:  # not new
            if not accepted:
                kept.metrics.skip()
            if kept.epoch <= context.committed:
                kept.notify(operator.uid, context.committed)
            elif kept.listener is not None:
                kept.listener.notify_checkpoint_aborted(kept.epoch)
        kept.epoch, kept.attempt = context.epoch, attempt
        return kept.instance

    def _at_committed(self, operator: Operator, subtask: int, context: EpochContext) -> tuple[_Kept, bool]:
        """The instance with the state of the committed epoch, and whether it computed that epoch."""
        kept = self.instances.get((operator.id, subtask))
        attempt = context.previous.get(f"{operator.stage}-{subtask}")
        accepted = kept is not None and kept.epoch == context.committed and attempt == kept.attempt
        if kept is None or (isinstance(kept.instance, Checkpointed) and not accepted):
            if kept is not None:
                kept.instance.close()
            kept = self.instances[operator.id, subtask] = self._new(operator, subtask)
        return kept, accepted

    def _new(self, operator: Operator, subtask: int) -> _Kept:
        spec = self.spec
        info = TaskInfo(operator, subtask, spec.parallelism, spec.max_parallelism, spec.parameters, spec.known_states)
        store = self.state(subtask).store if operator.stateful else None
        restored = any(state.uid == operator.uid for state in spec.known_states.values())
        with user_code(operator.uid, lambda: "none yet: open()"):
            instance, listener = make_instance(info, store, restored=restored)
        return _Kept(instance, listener, MetricReporter(operator.uid, info.metrics))

    def notify(self, subtask: int, context: EpochContext) -> None:
        """Notify the listening functions on a subtask that the committed epoch is complete."""
        self.state(subtask).catch_up(context)
        for operator in listeners_of(self.spec.graph):
            if operator.stage or subtask == 0:  # functions of stage 0 count as subtask 0
                self._at_committed(operator, subtask, context)[0].notify(operator.uid, context.committed)

    def user_metrics(self, operator_id: int, subtask: int) -> list[UserMetric]:
        """The changes of the operator's user metrics; none without an instance in this process."""
        kept = self.instances.get((operator_id, subtask))
        return [] if kept is None else kept.metrics.take()

    def rest(self) -> None:
        """After a task, where the next one of its subtask may run in another process: let that open the store."""
        for state in self.states.values():
            if self.spec.store == "rocksdb" and isinstance(state.store, WriteBackStore):
                state.store.suspend()

    def close(self) -> None:
        for kept in self.instances.values():
            kept.instance.close()
        for state in self.states.values():
            state.store.close()


def listeners_of(graph: JobGraph) -> list[Operator]:
    """The operators whose functions are checkpoint listeners."""
    return [o for o in graph.operators if isinstance(o.spec, RunnableSpec) and isinstance(o.spec.function, CheckpointListener)]


_STORE_SHARE = 8  # of a subtask's memory, for its store, and for the changes that wait for it


def store_bytes(memory_bytes: int | None) -> int | None:
    """The share that a subtask's store, and that the changes which wait for it, may take of its memory."""
    return memory_bytes and memory_bytes // _STORE_SHARE


_workers: dict[tuple[int, str], Worker] = {}


def open_cache(kind: StoreKind, directory: Path, memory_bytes: int | None = None) -> Store:
    """The store in this directory. An empty store replaces a damaged one, because it can be rebuilt from committed state."""
    try:
        return open_store(kind, directory, memory_bytes)
    except StorageError:
        destroy_store(directory)
        return open_store(kind, directory, memory_bytes)


def worker_for(spec: JobSpec) -> Worker:
    """This process's worker for a run; a forked process creates its own."""
    key = (os.getpid(), spec.run)
    worker = _workers.get(key)
    if worker is None:
        for old in [k for k in _workers if k[0] != os.getpid()]:
            del _workers[old]
        worker = _workers[key] = Worker(spec, open_storage(spec.storage_url), JobPaths(spec.job))
    return worker


def rest_worker(run: str) -> None:
    """``Worker.rest`` of this process's worker, if it has one."""
    worker = _workers.get((os.getpid(), run))
    if worker is not None:
        worker.rest()


def drop_worker(run: str) -> None:
    """Close this process's worker for a run that has ended."""
    worker = _workers.pop((os.getpid(), run), None)
    if worker is not None:
        worker.close()
