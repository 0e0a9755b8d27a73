"""The layouts of a run. A layout is its graph at some parallelism, with local stores.

Operator state belongs to subtasks, so a rescaling redistributes it. The first manifest of the new layout has the redistribution
as changes: it deletes each subtask's old entries and puts its new ones. Stores that follow the job, rebuilt stores and exports
thus have the same state.
"""

from __future__ import annotations

import base64
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count

from forkpoint.checkpoint.format import checksum
from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.manifest import ChangesRef, Manifest
from forkpoint.checkpoint.states import StateInfo
from forkpoint.graph.job import JobGraph
from forkpoint.graph.options import JobOptions
from forkpoint.graph.specs import SinkSpec
from forkpoint.runtime.exchange.control import JobSpec
from forkpoint.runtime.operators.sinks import StagingSink
from forkpoint.runtime.tasks.committed_state import columns_of
from forkpoint.savepoint.export.chain import state_files
from forkpoint.savepoint.export.chain_reader import operator_state
from forkpoint.savepoint.format.entries import redistribute
from forkpoint.state import OPERATOR_KG, Changes, as_changes, decode_operator_key, kg_of, write_changes
from forkpoint.types.lookup import this_program

# The limits of inline changes and of each sink's output in a manifest, because each rebuilt subtask reads entire manifests.
INLINE_BYTES = 1 << 20
OPERATOR_INLINE_BYTES = 20_000
STAGE = 0  # its tasks have no state of their own


@dataclass
class Layouts:
    """Makes the layouts of one run. Each attempt and each preparation gets a numbered layout with separate stores, because a task
    of an abandoned layout may still write."""

    run: str
    job: str
    graph: JobGraph
    options: JobOptions
    storage_url: str
    local_dir: str
    _numbers: Iterator[int] = field(default_factory=count)

    def next(self, manifest: Manifest, parallelism: int) -> JobSpec:
        """A new layout. ``manifest``: the base of its first epoch or its preparation."""
        options, name = self.options, self._name()
        return JobSpec(
            run=name,
            job=self.job,
            graph=self.graph.shipped(lambda s: SinkSpec(StagingSink(self.storage_url, self.job, s.type))),
            storage_url=self.storage_url,
            parallelism=parallelism,
            max_parallelism=self.graph.max_parallelism,
            store=options.state_backend,
            local_dir=f"{self.local_dir}/{name}",
            parameters=dict(options.parameters),
            periodic_watermarks=options.auto_watermark_interval_ms > 0,
            known_states={state.sid: state for state in manifest.states},
            restored_from=manifest.epoch,
            inline_bytes=min(JobSpec.inline_bytes, INLINE_BYTES // parallelism),
            inline_output_bytes=min(JobSpec.inline_output_bytes, INLINE_BYTES // parallelism),
            memory_bytes=options.memory_bytes,
            program=this_program(options.allow_pickle),
        )

    def another(self, layout: JobSpec) -> JobSpec:
        """The same layout with separate stores."""
        name = self._name()
        return replace(layout, run=name, local_dir=f"{self.local_dir}/{name}")

    def _name(self) -> str:
        return f"{self.run}-{next(self._numbers)}"


@dataclass
class OperatorState:
    """The operator state of all subtasks at a committed epoch: store entries by key. Usually small."""

    history: History
    epoch: int = 0
    entries: dict[bytes, bytes] = field(default_factory=dict)

    def advance(self, manifest: Manifest) -> None:
        """Advance to this epoch of the job. The first call reads the epoch's snapshots."""
        if not any(state.is_operator_state for state in manifest.states):
            return
        if not self.epoch:
            files = state_files(manifest, self.history.load).operator_state()
            self.entries = dict(zip(*operator_state(self.history.storage, files), strict=True))
        else:
            for epoch in range(self.epoch + 1, manifest.epoch + 1):
                step = manifest if epoch == manifest.epoch else self.history.load(epoch)
                for ref in sorted(step.changes, key=lambda ref: (ref.stage, ref.subtask)):
                    self._apply(as_changes(*columns_of(self.history.storage, ref)))
        self.epoch = manifest.epoch

    def _apply(self, changes: Changes) -> None:
        for key, value in zip(changes.keys, changes.values, strict=True):
            if kg_of(key) != OPERATOR_KG:
                continue
            if value is None:
                self.entries.pop(key, None)
            else:
                self.entries[key] = value


def redistributed(entries: Mapping[bytes, bytes], states: Iterable[StateInfo], before: int, after: int) -> dict[int, Changes]:
    """The changes of each subtask's operator state in a rescaling. Pure."""
    by_state: dict[int, list[bytes]] = defaultdict(list)
    changed: dict[int, dict[bytes, bytes | None]] = defaultdict(dict)
    for key in sorted(entries):
        owner = decode_operator_key(key)
        by_state[owner.sid].append(key)
        changed[owner.subtask][key] = None
    kinds = {state.sid: state.kind for state in states}
    for sid, keys in by_state.items():
        values = [entries[key] for key in keys]
        for subtask in range(after):
            changed[subtask].update(zip(*redistribute(kinds[sid], keys, values, subtask, before, after), strict=True))
    return {subtask: Changes(list(found), list(found.values())) for subtask, found in sorted(changed.items()) if found}


def written(history: History, epoch: int, changes: Mapping[int, Changes]) -> list[ChangesRef]:
    """References to the changes for the manifest of this epoch: inline, or to files if they are large."""
    refs = []
    for subtask, own in changes.items():
        data, attempt = write_changes(own), uuid.uuid4().hex[:12]
        path = history.paths.changelog(epoch, STAGE, subtask, attempt) if len(data) > OPERATOR_INLINE_BYTES else None
        if path is not None:
            history.storage.put(path, data)
        refs.append(
            ChangesRef(
                stage=STAGE,
                subtask=subtask,
                attempt=attempt,
                kg_start=0,
                kg_stop=0,
                path=path,
                inline=base64.b64encode(data).decode() if path is None else None,
                entries=len(own),
                bytes=len(data),
                checksum=checksum(data),
            )
        )
    return refs
