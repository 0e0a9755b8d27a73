"""Compiles transformations to a job graph: order, uids, watermark origins, stages. Pure; rejects invalid jobs."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from forkpoint.errors import GraphError
from forkpoint.graph.batch import in_mode
from forkpoint.graph.job import InEdge, JobGraph, Operator
from forkpoint.graph.options import RuntimeExecutionMode
from forkpoint.graph.projection import projected
from forkpoint.graph.sendable import check_sendable
from forkpoint.graph.specs import DataFrameSpec, LoopEnd, LoopStart, SourceSpec, TimestampsSpec, WatermarkSpec
from forkpoint.graph.transformations import Edge, Forward, KeyBy, Rebalance, Transformation, topological_order
from forkpoint.types import same_keys


@dataclass(frozen=True)
class Compiled:
    """``parallelisms``: the values of ``set_parallelism()``, by uid."""

    graph: JobGraph
    generated_uids: tuple[str, ...]
    parallelisms: Mapping[str, int]


def compile_graph(
    sinks: Iterable[Transformation],
    *,
    max_parallelism: int,
    require_uids: bool,
    mode: RuntimeExecutionMode = RuntimeExecutionMode.STREAMING,
    over_columns: bool = True,
) -> Compiled:
    """Compile the job graph of everything upstream of the given transformations, for a runtime mode.

    With ``require_uids`` every source, sink and stateful operator needs a uid; a GraphError lists the operators without a uid
    and suggests uids. Otherwise uids are generated.
    """
    order = topological_order(sinks)
    if not order:
        raise GraphError("the job has no operators; add a source and a sink before execute()")
    uids = _uids(order, require_uids=require_uids)
    operators = projected(_operators(order, uids))
    if not over_columns:
        operators = list(map(_in_python, operators))
    check_sendable(order, uids)
    consumers: dict[int, list[tuple[int, InEdge]]] = {}
    for operator in operators:
        for edge in operator.inputs:
            consumers.setdefault(edge.upstream, []).append((operator.id, edge))
    for operator in operators:
        if isinstance(operator.spec, SourceSpec):
            _check_side_outputs(operator, {edge.tag for _, edge in consumers.get(operator.id, ())})
    graph = JobGraph(
        tuple(operators), max(o.stage for o in operators), max_parallelism, {k: tuple(v) for k, v in consumers.items()}
    )
    return Compiled(
        in_mode(graph, mode),
        tuple(uids[t] for t in order if t.uid is None and t.spec.needs_uid),
        {uids[t]: t.parallelism for t in order if t.parallelism is not None},
    )


def _in_python(operator: Operator) -> Operator:
    """The operator without functions over columns."""
    inputs = (
        replace(each, partitioning=replace(by, over_columns=False)) if isinstance(by := each.partitioning, KeyBy) else each
        for each in operator.inputs
    )
    return replace(operator, inputs=tuple(inputs), over_columns=False)


def _operators(order: list[Transformation], uids: Mapping[Transformation, str]) -> list[Operator]:
    """The operators in topological order, with their stages, effective input edges and watermark origins."""
    loop_ends = _closed_loops(order, uids)
    edge_ids = itertools.count()
    compiled: dict[Transformation, Operator] = {}
    for t in order:
        edges = tuple(_effective(t, e) for e in t.inputs)
        upstream = [compiled[e.upstream] for e in edges]
        stage = max(
            (o.stage + (not isinstance(e.partitioning, Forward)) for o, e in zip(upstream, edges, strict=True)), default=0
        )
        watermarks = t.spec if isinstance(t.spec, WatermarkSpec) else None
        _check_timestamps(t, uids[t], stage)
        _check_alignment(t, uids[t])
        _check_keys(uids[t], edges)
        inputs = tuple(
            InEdge(
                next(edge_ids),
                o.id,
                None if e.tag is None else e.tag.tag_id,
                e.partitioning,
                e.ordinal,
                o.stage < stage,
                e.upstream.output_type if e.tag is None else e.tag.type_info,
            )
            for o, e in zip(upstream, edges, strict=True)
        )
        id = len(compiled)
        compiled[t] = Operator(
            id,
            uids[t],
            t.uid is None,
            t.name,
            t.spec.kind,
            loop_ends.get(t, t.spec),
            stage,
            inputs,
            t.output_type,
            t.spec.stateful,
            frozenset().union(*(o.origins for o in upstream)) if watermarks is None else frozenset({id}),
            None if watermarks is None else watermarks.timestamp_column,
            t.migrations,
        )
    return list(compiled.values())


def _closed_loops(order: list[Transformation], uids: Mapping[Transformation, str]) -> dict[Transformation, LoopEnd]:
    """The specs of all iteration ends, with the uids of their heads: feedback is not an edge, so the graph stays acyclic.

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
            raise GraphError(f"close_with() takes a stream derived from the iteration, but {t.inputs[0].upstream.name!r} is not")
        if t.spec.loop in ends:
            raise GraphError(f"iteration {uids[head]!r} is closed twice; close it with the union of the feedback streams")
        ends[t.spec.loop] = t
        specs[t] = replace(t.spec, iteration=uids[head])
    for loop, head in heads.items():
        if loop not in ends:
            raise GraphError(f"iteration {uids[head]!r} is not closed; call close_with() with the feedback stream")
    return specs


def _check_timestamps(t: Transformation, uid: str, stage: int) -> None:
    if isinstance(t.spec, TimestampsSpec) and stage > 0:
        raise GraphError(
            f"operator {uid!r}: timestamps and watermarks must be assigned before any key_by or rebalance, which loses the "
            "order within a split"
        )


def _check_alignment(t: Transformation, uid: str) -> None:
    strategy = t.spec.strategy if isinstance(t.spec, WatermarkSpec) else None
    if strategy is None or strategy.alignment is None:
        return
    group = strategy.alignment.group
    if not isinstance(t.spec, SourceSpec):
        what = "reads a Spark DataFrame" if isinstance(t.spec, DataFrameSpec) else "assigns timestamps after a source"
        raise GraphError(
            f"operator {uid!r} {what}, so it cannot be paused for watermark alignment group {group!r}; pass the strategy to "
            "from_source(), or drop with_watermark_alignment() and limit what an epoch reads (max_rows)"
        )
    if strategy.out_of_orderness_ms is None and strategy.generator_factory is None:
        raise GraphError(
            f"source {uid!r} has no watermarks, so the other sources of watermark alignment group {group!r} would never advance; "
            "use for_monotonous_timestamps(), for_bounded_out_of_orderness() or for_generator()"
        )


def _check_side_outputs(source: Operator, read: Collection[str | None]) -> None:
    """Raise GraphError for a side output of a source that nothing reads, or that is read but does not exist."""
    sent = {tag.tag_id for tag in source.source.side_outputs}
    if unread := sorted(sent.difference(read)):
        raise GraphError(
            f"source {source.uid!r} has the side output {unread[0]!r}, which nothing reads: its elements would be lost. Read it "
            "with get_side_output() of the source's stream"
        )
    if unknown := sorted(tag for tag in read if tag is not None and tag not in sent):
        raise GraphError(
            f"source {source.uid!r} has no side output {unknown[0]!r}; it has {', '.join(map(repr, sorted(sent))) or 'none'}"
        )


def _effective(t: Transformation, edge: Edge) -> Edge:
    """The edge with its effective partitioning."""
    if t.spec.needs_key(edge.ordinal) and not isinstance(edge.partitioning, KeyBy):
        raise GraphError(f"operator {t.uid or t.name!r} has keyed state, but its input is not keyed; call key_by() first")
    if t.spec.needs_exchange and isinstance(edge.partitioning, Forward):
        return replace(edge, partitioning=Rebalance("split"))
    return edge


def _check_keys(uid: str, edges: Iterable[Edge]) -> None:
    """Keys of two inputs share state, so they must be hashed and stored in the same way."""
    types = [e.partitioning.key_type for e in edges if isinstance(e.partitioning, KeyBy)]
    for type in types[1:]:
        if not same_keys(type.describe(), types[0].describe()):
            raise GraphError(
                f"operator {uid!r}: the keys of its two inputs have different types, {types[0]} and {type}; give both the "
                "same key_type, as in key_by(selector1, selector2, key_type)"
            )


def _uids(order: list[Transformation], *, require_uids: bool) -> dict[Transformation, str]:
    uids: dict[Transformation, str] = {}
    taken: dict[str, Transformation] = {}
    for t in order:
        if t.uid is not None:
            if t.uid in taken:
                raise GraphError(
                    f"uid {t.uid!r} is used by two operators ({taken[t.uid].name!r} and {t.name!r}); uids must be unique"
                )
            taken[t.uid] = t
            uids[t] = t.uid
    missing: list[tuple[Transformation, str]] = []
    for t in order:
        if t.uid is None:
            base = re.sub(r"[^a-z0-9]+", "-", t.name.lower()).strip("-") or t.spec.kind
            name, n = base, 2
            while name in taken:
                name, n = f"{base}-{n}", n + 1
            taken[name] = t
            uids[t] = name
            if t.spec.needs_uid:
                missing.append((t, name))
    if require_uids and missing:
        rows = "\n".join(f"  {t.spec.kind:<15} {t.name!r}: .uid({name!r})" for t, name in missing)
        raise GraphError(
            "the job's state can outlive this run, so every source, sink and stateful operator needs a uid that stays the "
            f"same in later versions. These have none:\n{rows}"
        )
    return uids
