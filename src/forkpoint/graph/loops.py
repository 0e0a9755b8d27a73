"""Iterations in a graph: each start with its end. The way back is no edge, so the graph stays without cycles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from forkpoint.errors import GraphError
from forkpoint.graph.specs import LoopEnd, LoopStart
from forkpoint.graph.transformations import Transformation, topological_order


def closed_loops(order: Sequence[Transformation], uids: Mapping[Transformation, str]) -> dict[Transformation, LoopEnd]:
    """The specs of the ends of all iterations, each with its iteration's uid.

    GraphError for an iteration that was not closed, was closed twice, or with a stream that does not come from it.
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
                "close_with() of an iteration takes a stream that was made from the iteration, and "
                f"{t.inputs[0].upstream.name!r} does not come from there"
            )
        if t.spec.loop in ends:
            raise GraphError(
                f"iteration {uids[head]!r} is closed twice; unite the streams that are fed back and close it with the union"
            )
        ends[t.spec.loop] = t
        specs[t] = replace(t.spec, iteration=uids[head])
    for loop, head in heads.items():
        if loop not in ends:
            raise GraphError(
                f"iteration {uids[head]!r} has no end; call close_with(stream) on it with the stream that is fed back"
            )
    return specs
