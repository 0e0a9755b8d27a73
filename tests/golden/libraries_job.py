"""The job behind the golden files of patterns and graphs. What it saved has to fit it forever, so it does not change any more."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import forkpoint as fp
from forkpoint import col
from forkpoint.graphs import Graph
from forkpoint.testing import Eof, LocalRun, run_local


class Payment(NamedTuple):
    card: str
    shop: str
    amount: int
    at_ms: int
    returned: bool = False


FIRST = [
    Payment("a", "s", 5, 1_000),
    Payment("b", "s", 7, 2_000),
    Payment("a", "t", 60, 3_000),
    Payment("b", "u", 400, 4_000),
    Payment("c", "v", 3, 5_000),
    Payment("b", "t", 70, 6_000),
    Payment("b", "t", 80, 7_000),
    Payment("c", "w", 9, 9_000),
]
REST = [
    Payment("a", "s", 700, 10_000),
    Payment("b", "s", 7, 11_000, returned=True),
    Payment("b", "v", 900, 12_000),
    Payment("c", "v", 50, 70_000),
]


def pattern(small: str = "small", limit: int = 10) -> fp.Pattern:
    return (
        fp.Pattern.begin(small)
        .where(col("amount") < limit)
        .not_followed_by("back")
        .where(col("returned"))
        .followed_by("mid")
        .where(col("amount").between(50, 100))
        .one_or_more()
        .followed_by("large")
        .where(lambda payment: payment.amount > 500)
        .within(timedelta(minutes=1))
    )


def run(state_root: Path, given: fp.Pattern, **more: Any) -> LocalRun:
    def build(env: fp.StreamExecutionEnvironment, payments: Any) -> Any:
        time = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda payment, _: payment.at_ms)
        stream = env.from_source(payments, time, "payments", Payment).uid("payments")
        graph = Graph.from_edges(stream, "card", "shop", removed="returned", value="amount", uid="shops")
        matches = fp.CEP.pattern(stream.key_by("card"), given).select(amounts, str).uid("matches")
        by_vertex = {"degrees": graph.degrees(), "components": graph.connected_components(), "colors": graph.two_coloring()}
        sums = graph.aggregate_neighbors(lambda _, neighbors: sum(each.value for each in neighbors), int)
        by_vertex |= {"triangles": graph.triangles(), "sums": sums, "distances": graph.shortest_paths("a")}
        return {"matches": matches, **by_vertex}

    script = [*FIRST, Eof(savepoint=True), *REST]
    return run_local(build, script, state_root=state_root, **{"epochs": 4, "job_name": "libraries", **more})


def amounts(match: dict[str, list[Payment]]) -> str:
    return " ".join(f"{stage}={','.join(str(each.amount) for each in found)}" for stage, found in match.items())
