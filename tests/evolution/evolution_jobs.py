"""Runs of a job whose program changes from one run to the next, on the local engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import forkpoint as fp
from forkpoint.graph.options import RestoreOptions
from forkpoint.testing import Eof, LocalRun, TestSource, run_local

STOP = Eof(savepoint=True)


def keeper(descriptor: Any, on: Callable[[Any, Any], Any]) -> fp.KeyedProcessFunction:
    """A function with one state. ``on(state, value)`` is called for each element and gives what to emit with the key."""

    class Keeper(fp.KeyedProcessFunction):
        state = descriptor

        def process_element(self, value: Any, ctx: Any) -> Any:
            yield ctx.get_current_key(), on(self.state, value)

    return Keeper()


def keyed(fn: fp.KeyedProcessFunction, change: Callable[[Any], Any] = lambda s: s, key: Any = (lambda v: v[0], str)):
    """A job of one keyed function with the uid "keeper" on elements (key, value)."""

    def build(env: Any, source: TestSource) -> Any:
        stream = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "in").uid("in")
        return change(stream.key_by(key[0], key[1]).process(fn).uid("keeper"))

    return build


def life(root: Path, build: Any, *inputs: Sequence[Any], **how: Any) -> LocalRun:
    """One run over the same state root; ``restore`` is "latest" from the second on, if the caller says so."""
    return run_local(build, *inputs, state_root=root, **{"parallelism": 2, **how})


def go_on(**options: Any) -> RestoreOptions:
    return RestoreOptions(savepoint="latest", **options)


def saved_then(root: Path, before: Any, after: Any, *, first: Sequence[Any], then: Sequence[Any], **how: Any) -> list[Any]:
    """Run ``before`` on the first elements, stop with a savepoint, restore ``after``, and return what it gives for the rest."""
    assert life(root, before, [*first, STOP, *then]).outcome == "stopped"
    return life(root, after, [*first, STOP, *then], **{"restore": go_on(), **how}).output
