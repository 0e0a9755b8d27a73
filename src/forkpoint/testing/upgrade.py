"""Stops a job with a savepoint, and resumes it with another version of its program."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from forkpoint.graph.options import RestoreOptions
from forkpoint.storage.base import open_storage
from forkpoint.testing.local import Build, LocalRun, run_local
from forkpoint.testing.source import EOF, PAUSE, Eof, parse


class UpgradeRun:
    """The result of ``run_upgrade``. ``before``: the old version's run. ``after``: the new version's run from the savepoint."""

    def __init__(
        self, before: LocalRun, after: LocalRun, new: Build, inputs: Sequence[Sequence[Any]], options: Mapping[str, Any]
    ) -> None:
        self.before = before
        self.after = after
        self._new = (new, inputs, options)

    @property
    def output(self) -> list[Any]:
        """The elements of the only output in both runs."""
        return [*self.before.output, *self.after.output]

    @property
    def outputs(self) -> dict[str, list[Any]]:
        """The elements of both runs, by name."""
        names = {**self.before.outputs, **self.after.outputs}
        return {name: [*self.before.outputs.get(name, ()), *self.after.outputs.get(name, ())] for name in names}

    @cached_property
    def undisturbed(self) -> LocalRun:
        """A run of the new version over all elements: the output is the same if the upgrade does not change results."""
        new, inputs, options = self._new
        return run_local(new, *inputs, **options)


def run_upgrade(
    old: Build,
    new: Build,
    *inputs: tuple[Sequence[Any], Sequence[Any]],
    allow_non_restored: bool = False,
    renames: Mapping[str, str] | None = None,
    new_parallelism: int | None = None,
    **options: Any,
) -> UpgradeRun:
    """Run ``old``, stop it with a savepoint, and resume with ``new``. Raises RestoreRefused if the saved state does not fit.

    ``inputs``: per source, the elements that ``old`` reads and the elements that ``new`` reads; both may have sentinels.
    ``allow_non_restored`` and ``renames``: as in RestoreOptions. ``new_parallelism``: of the second run. ``options``: of
    ``run_local``, for both runs. Every source, sink and stateful operator needs a uid.
    """
    counts = [_epochs(before, options.get("epochs")) for before, _ in inputs]
    # The run stops at the first end of an input: shorter ones wait for the others.
    waits = [[PAUSE] * (max(counts) - count) for count in counts]
    scripts = [[*before, *wait, Eof(savepoint=True), *after] for (before, after), wait in zip(inputs, waits, strict=True)]
    root = options.pop("state_root", None) or f"memory://{uuid.uuid4().hex}"
    try:
        stopped = run_local(old, *scripts, state_root=root, **options)
        restore = RestoreOptions(stopped.savepoint, allow_non_restored, dict(renames or {}))
        later = {**options, "parallelism": new_parallelism or options.get("parallelism")}
        resumed = run_local(new, *scripts, state_root=root, restore=restore, **later)
    finally:
        if str(root).startswith("memory:"):
            for area in ("jobs", "savepoints"):
                open_storage(str(root)).delete_prefix(area)
    return UpgradeRun(stopped, resumed, new, [[*before, PAUSE, *after] for before, after in inputs], options)


def _epochs(elements: Sequence[Any], epochs: int | Sequence[int] | None) -> int:
    """In how many epochs a source reads its elements. ``epochs``: as of ``run_local``."""
    limit = epochs if isinstance(epochs, int) else max(1, len(elements))
    *sections, _ = parse([*elements, EOF], () if epochs is None or isinstance(epochs, int) else epochs).sections
    return sum(max(1, -(-(section.stop - section.start) // limit)) for section in sections)
