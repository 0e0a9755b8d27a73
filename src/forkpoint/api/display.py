"""Display of streams, environments and jobs as text and in a notebook."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from forkpoint.graph.transformations import Forward, Transformation, topological_order
from forkpoint.markup import Arrow, Node, drawing, facts, page, table
from forkpoint.types import TypeInformation
from forkpoint.wording import duration, number, type_name, visible_cell, watermark

if TYPE_CHECKING:
    from forkpoint.api.results import JobClient, JobStatus

_UPDATE_SECONDS = 1.0
_COLUMNS = ("operator", "name", "elements", "late, dropped", "watermark")


def type_text(type: TypeInformation | None) -> str:
    """The type of a stream's elements."""
    return "untyped" if type is None else type_name(type.describe())


def operator_text(operator: Transformation) -> str:
    """An operator's name and uid."""
    uid = "" if operator.uid is None else f", uid {operator.uid!r}"
    return f"{visible_cell(operator.name)!r}{visible_cell(uid)}"


def graph_html(title: str, ends: Iterable[Transformation], accented: Collection[Transformation] = ()) -> str:
    """A drawing of the graph up to the operators ``ends``, with names, uids and types. ``accented``: operators to highlight."""
    order = topological_order(ends)
    index = {operator: number for number, operator in enumerate(order)}
    nodes = [Node(_lines(operator), operator in accented) for operator in order]
    arrows = [Arrow(index[edge.upstream], number, _label(edge)) for operator, number in index.items() for edge in operator.inputs]
    return page(title, drawing(title, nodes, arrows))


def _lines(operator: Transformation) -> tuple[str, ...]:
    uid = "no uid" if operator.uid is None else f"uid {operator.uid}"
    return operator.name, uid, *([] if operator.output_type is None else [type_text(operator.output_type)])


def _label(edge: Any) -> str:
    how = "" if isinstance(edge.partitioning, Forward) else edge.partitioning.ship_strategy.lower()
    return " ".join(part for part in (how, "" if edge.tag is None else f"side {edge.tag.tag_id}") if part)


def job_text(client: JobClient) -> str:
    """A job's state as one line."""
    status = client.job.driver.status()
    name, state = visible_cell(client.job.name), _state(client).name
    return f"<JobClient of job {name!r}, run {status.run}: {state}, epoch {status.epoch}>"


def job_html(client: JobClient) -> str:
    """A job's current state, and the elements and watermarks of its operators."""
    status, graph = client.job.driver.status(), client.job.graph
    state = _state(client)
    summary = {
        "run": status.run,
        "state": state.name,
        "epoch": number(status.epoch),
        "since": None if state.is_terminal else duration(int(time.time() * 1_000) - status.started_ms),
        "restarts": number(status.restarts) if status.restarts else None,
        "failure": status.failure,
    }
    rows = []
    for operator in graph.operators:
        mark = status.watermarks.get(operator.uid)
        late = status.late_records_dropped.get(operator.uid, 0)
        rows.append(
            [
                operator.uid,
                operator.name,
                number(status.records.get(operator.uid, 0)),
                number(late) if late else "",
                "" if mark is None else watermark(mark),
            ]
        )
    return page(f"Job {client.job.name}", facts(summary), table(_COLUMNS, rows, right=_COLUMNS[2:4]))


def show_job(client: JobClient) -> None:
    """Display the job in a notebook, and update the table until the job ends."""
    from IPython import get_ipython
    from IPython.display import display

    def bundle() -> dict[str, str]:
        return {"text/plain": job_text(client), "text/html": job_html(client)}

    # A terminal would print each update.
    if getattr(get_ipython(), "kernel", None) is None:
        display(bundle(), raw=True)
        return
    handle = display(bundle(), raw=True, display_id=True)

    def follow() -> None:
        ended = False
        while not ended:
            time.sleep(_UPDATE_SECONDS)
            ended = client.get_job_execution_result().done()  # read first, so that the last update shows the final state
            handle.update(bundle(), raw=True)

    threading.Thread(target=follow, name=f"forkpoint-display-{client.job.name}", daemon=True).start()


def _state(client: JobClient) -> JobStatus:
    return client.get_job_status().result()
