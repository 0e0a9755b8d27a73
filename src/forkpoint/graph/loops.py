"""Pairs the head of each iteration with its end. Feedback is not an edge, so the graph stays acyclic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from forkpoint.errors import GraphError
from forkpoint.graph.specs import LoopEnd, LoopStart
from forkpoint.graph.transformations import Transformation, topological_order


def closed_loops(order: Sequence[Transformation], uids: Mapping[Transformation, str]) -> dict[Transformation, LoopEnd]:
    """The specs of all iteration ends, with the uids of their heads.

    GraphError for an iteration that is not closed, closed twice, or closed with a stream not derived from it.
    """
    heads = {t.spec.loop: t for t in order if isinstance(t.spec, LoopStart)}
    ends: dict[int, Transformation] = {}
    specs: dict[Transformation, LoopEnd] = {}
    for t in order:
        if not isinstance(t.spec, LoopEnd):
            continue
        head = heads.get(t.spec.loop)
        if head is None or head not in topological_order([t]):
            raise GraphError(
                f"close_with() takes a stream derived from the iteration, but {t.inputs[0].upstream.name!r} is not"
            )
        if t.spec.loop in ends:
            raise GraphError(
                f"iteration {uids[head]!r} is closed twice; close it with the union of the feedback streams"
            )
        ends[t.spec.loop] = t
        specs[t] = replace(t.spec, iteration=uids[head])
    for loop, head in heads.items():
        if loop not in ends:
            raise GraphError(f"iteration {uids[head]!r} is not closed; call close_with() with the feedback stream")
    return specs
