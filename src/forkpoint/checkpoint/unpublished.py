"""Finds committed output that a job's last run, which has ended or was killed, may not have published."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forkpoint.errors import SavepointCorrupt, StorageError

if TYPE_CHECKING:
    from forkpoint.checkpoint.history import History
    from forkpoint.checkpoint.manifest import Manifest, Run


@dataclass(frozen=True)
class Unpublished:
    """``epochs``: the committed epochs that may be unpublished; ``sinks``: the uids of the sinks with output of them."""

    job: str
    epochs: tuple[int, ...]
    sinks: tuple[str, ...]
    drained: bool = False

    @property
    def text(self) -> str:
        """For people, with the remedy."""
        first, last = self.epochs[0], self.epochs[-1]
        which = f"epoch {first} is" if first == last else f"epochs {first} to {last} are"
        stopped = "it was stopped with a drain, and " if self.drained else ""
        sinks = ", ".join(map(repr, self.sinks))
        return (
            f"{stopped}{which} committed, but may not be published by sink {sinks}: "
            f"`forkpoint publish {shlex.quote(self.job)}` publishes the rest{'' if self.drained else ', as does the next run'}"
        )


def find_unpublished(history: History, runs: Mapping[str, Run]) -> Unpublished | None:
    """The unpublished output of a job that does not run. ``runs``: its records."""
    try:
        last = history.newest()
        while last is not None and last.kind == "start":  # a run that was killed at its start may have published nothing
            if _published(last, runs):
                return None
            last = history.before(last.epoch)
    except (StorageError, SavepointCorrupt):
        return None
    if last is None or _published(last, runs) or (last.run in runs and runs[last.run].ended_well):
        return None
    return unpublished_of(last)


def unpublished_of(newest: Manifest) -> Unpublished | None:
    """The output that may be unpublished according to this manifest, without withheld output, which the next run decides
    about."""
    found = {uid: [output.epoch for output in outputs] for uid, outputs in newest.unpublished.items()}
    for uid, committables in newest.sinks.items():
        if committables and not newest.withheld:
            found.setdefault(uid, []).append(newest.epoch)
    epochs = sorted({epoch for of_sink in found.values() for epoch in of_sink})
    sinks = tuple(sorted(uid for uid, of_sink in found.items() if of_sink))
    drained = newest.drained_early and not newest.withheld
    return Unpublished(newest.job, tuple(epochs), sinks, drained) if epochs else None


def _published(manifest: Manifest, runs: Mapping[str, Run]) -> bool:
    record = runs.get(manifest.run)
    return record is not None and record.published is not None and record.published >= manifest.epoch
