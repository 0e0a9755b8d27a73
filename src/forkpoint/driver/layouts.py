"""The layouts of a run: its graph at some parallelism, with local stores of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count

from forkpoint.checkpoint.manifest import Manifest
from forkpoint.connectors import StagingSink
from forkpoint.graph.job import JobGraph
from forkpoint.graph.options import JobOptions
from forkpoint.graph.specs import SinkSpec
from forkpoint.runtime.exchange.control import JobSpec
from forkpoint.types.lookup import this_program

INLINE_BYTES = (
    1 << 20
)  # of changes, and of each sink's output, in a manifest: each subtask that is rebuilt reads whole manifests


@dataclass
class Layouts:
    """Makes the layouts of one run. They are numbered, as each attempt and each preparation has its own stores: a task of an
    abandoned one may still write."""

    run: str
    job: str
    graph: JobGraph
    options: JobOptions
    storage_url: str
    local_dir: str
    _numbers: Iterator[int] = field(default_factory=count)

    def next(self, manifest: Manifest, parallelism: int) -> JobSpec:
        """A new layout. ``manifest``: what its first epoch, or its preparation, begins from."""
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
            inline_bytes=min(JobSpec.inline_bytes, INLINE_BYTES // parallelism),
            program=this_program(options.allow_pickle),
        )

    def another(self, layout: JobSpec) -> JobSpec:
        """The same layout with stores of its own."""
        name = self._name()
        return replace(layout, run=name, local_dir=f"{self.local_dir}/{name}")

    def _name(self) -> str:
        return f"{self.run}-{next(self._numbers)}"
