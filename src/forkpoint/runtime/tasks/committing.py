"""Commits of sinks' output, as tasks beside the epochs."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace

from forkpoint.checkpoint.manifest import EpochOutput
from forkpoint.connectors.base import JSON
from forkpoint.connectors.committing import CommitterContext, CommittingSink
from forkpoint.types import dumps


@dataclass(frozen=True)
class Commit:
    """One task: the output of one group of a sink."""

    sink: CommittingSink
    context: CommitterContext
    outputs: Sequence[EpochOutput]


def commits(sink: CommittingSink, context: CommitterContext, outputs: Sequence[EpochOutput]) -> list[bytes]:
    """The tasks that commit a sink's output, one for each group. The ``context`` is of no group."""
    groups: dict[str, list[EpochOutput]] = {}
    for output in outputs:
        parts: dict[str, list[JSON]] = {}
        for committable in output.committables:
            parts.setdefault(sink.group(committable), []).append(committable)
        for group, committables in parts.items():
            groups.setdefault(group, []).append(EpochOutput(epoch=output.epoch, committables=committables))
    return [dumps(Commit(sink, replace(context, group=group), parts)) for group, parts in sorted(groups.items())]


def commit_output(encoded: bytes) -> bytes:
    """The task: an encoded ``Commit``; the result is empty."""
    work: Commit = pickle.loads(encoded)
    committer = work.sink.create_committer(work.context)
    try:
        committer.commit(work.outputs)
    finally:
        committer.close()
    return b""
