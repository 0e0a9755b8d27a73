"""Routes: the state of jobs at their last committed epoch, while they run."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from forkpoint import operations
from forkpoint.operations.shapes import entries_json, query_json, states_json
from forkpoint.server.context import ERRORS, Job, Served, command
from forkpoint.server.routes.savepoints import QueryBody
from forkpoint.server.segments import SegmentRoute
from forkpoint.server.service import ROWS

router = APIRouter(route_class=SegmentRoute, responses=ERRORS, tags=["state"])


@router.get("/jobs/{job}/state")
def states(entry: Job, served: Served) -> dict[str, Any]:
    """The states of a job."""
    return states_json(operations.states_of(served.service.state(entry)))


@router.get("/jobs/{job}/state/{uid}/{state}")
def entries(
    entry: Job,
    uid: str,
    state: str,
    served: Served,
    key: Annotated[str | None, Query(description="text as it is, other types as JSON")] = None,
    limit: Annotated[int, Query(ge=1, le=ROWS)] = 100,
) -> dict[str, Any]:
    """The rows of a state of a job, or of one key."""
    return entries_json(operations.entries_of(served.service.state(entry), uid, state, key, limit=limit))


@router.post("/jobs/{job}/query", openapi_extra=command("sql"))
def query(entry: Job, body: QueryBody, served: Served) -> dict[str, Any]:
    """Run a SELECT over the states of a job, for at most 30 s. The result is cut after 10,000 rows or 16 MiB."""
    with served.service.querying() as limits:
        return query_json(operations.query_of(served.service.state(entry), body.sql, limits))
