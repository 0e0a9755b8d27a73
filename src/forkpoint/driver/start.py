"""What a run starts from (nothing, a checkpoint or a savepoint), and its first manifest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from forkpoint.checkpoint.manifest import Manifest, Parent, SnapshotRef, SourcePosition
from forkpoint.checkpoint.states import StateInfo
from forkpoint.driver.manifests import operator_infos
from forkpoint.graph.job import JobGraph


@dataclass(frozen=True)
class Restored:
    """What a run starts from, already in the job's own storage."""

    parent: Parent
    sources: Mapping[str, SourcePosition] = field(default_factory=dict)
    watermarks: Mapping[str, int] = field(default_factory=dict)
    input_watermarks: Mapping[str, list[int]] = field(default_factory=dict)
    states: tuple[StateInfo, ...] = ()
    snapshots: tuple[SnapshotRef, ...] = ()
    processing_time_ms: int = 0
    epoch: int = 1  # of the run's first manifest, higher than the job's and the savepoint's
    on_started: Callable[[], object] | None = None


def start_manifest(
    job: str, run: str, graph: JobGraph, restored: Restored, *, generation: int, parallelism: int, now_ms: int
) -> Manifest:
    """The first manifest of a run. Committing it fences all older runs of the job."""
    return Manifest(
        job=job,
        run=run,
        generation=generation,
        epoch=restored.epoch,
        kind="start",
        created_ms=now_ms,
        processing_time_ms=max(now_ms, restored.processing_time_ms),
        parallelism=parallelism,
        max_parallelism=graph.max_parallelism,
        sources={uid: _awake(position, now_ms) for uid, position in restored.sources.items()},
        watermarks=dict(restored.watermarks),
        input_watermarks=dict(restored.input_watermarks),
        states=list(restored.states),
        operators=operator_infos(graph),
        snapshots=list(restored.snapshots),
        parent=restored.parent,
    )


def _awake(position: SourcePosition, now_ms: int) -> SourcePosition:
    """Splits count as active at the start: while the job was down nobody read them."""
    splits = {name: s.model_copy(update={"last_active_ms": now_ms}) for name, s in position.splits.items()}
    return position.model_copy(update={"splits": splits})


def from_checkpoint(manifest: Manifest) -> Restored:
    """Resume from a checkpoint of the same job, whose files are used in place."""
    return Restored(
        Parent(kind="checkpoint", job=manifest.job, epoch=manifest.epoch, run=manifest.run),
        manifest.sources, manifest.watermarks, manifest.input_watermarks, tuple(manifest.states), tuple(manifest.snapshots),
        manifest.processing_time_ms,
    )  # fmt: skip


def checkpoint_fits(manifest: Manifest, graph: JobGraph, parallelism: int) -> bool:
    """Whether the new run can use a checkpoint's files in place; otherwise it is restored by way of a savepoint."""
    if manifest.max_parallelism != graph.max_parallelism:
        return False
    operator_state = any(s.is_operator_state for s in manifest.states)
    if operator_state and manifest.parallelism != parallelism:
        return False
    return {s.uid for s in manifest.states} <= set(graph.by_uid)
