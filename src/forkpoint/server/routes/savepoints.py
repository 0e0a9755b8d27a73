"""Routes: savepoints, their contents, and the history of jobs. Savepoints are named by id or label, below the state roots."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field, JsonValue
from starlette.requests import Request

from forkpoint import operations
from forkpoint.operations import EditRequest, StateFilter
from forkpoint.operations.shapes import (
    diff_json,
    edited_json,
    entries_json,
    gc_json,
    query_json,
    recovery_json,
    savepoint_json,
    savepoints_json,
    states_json,
    tree_json,
)
from forkpoint.savepoint.catalog.labels import check_label
from forkpoint.server import messages as m
from forkpoint.server.context import ERRORS, Job, RootQuery, Served, command
from forkpoint.server.requests import Asked
from forkpoint.server.routes.jobs import disposal_status
from forkpoint.server.segments import SegmentRoute
from forkpoint.server.service import ROWS

router = APIRouter(route_class=SegmentRoute, responses=ERRORS, tags=["savepoints"])


class LabelBody(m.Body):
    """Missing fields stay unchanged; an empty note removes the note, ``remove`` the label."""

    label: m.Text | None = None
    note: m.Text | None = None
    remove: bool = False
    force: bool = False


class DiffBody(m.Body):
    before: m.Text
    after: m.Text
    samples: int = Field(5, ge=0, le=1_000)


class QueryBody(m.Body):
    sql: str = Field(max_length=100_000)


class FilterBody(m.Body):
    uid: m.Text
    condition: m.Text
    state: m.Text | None = None


class StateName(m.Body):
    uid: m.Text
    state: m.Text


class StateRename(StateName):
    to: m.Text


class EditBody(m.Body):
    """The options of `forkpoint edit`; the new savepoint is below the state root."""

    remove_uids: list[m.Text] = Field(default_factory=list, max_length=1_000)
    remove_states: list[StateName] = Field(default_factory=list, max_length=1_000)
    rename_uids: dict[m.Text, m.Text] = Field(default_factory=dict, max_length=1_000)
    rename_states: list[StateRename] = Field(default_factory=list, max_length=1_000)
    filters: list[FilterBody] = Field(default_factory=list, max_length=100)
    positions: dict[m.Text, JsonValue] = Field(default_factory=dict, max_length=1_000)
    remove_positions: list[m.Text] = Field(default_factory=list, max_length=1_000)
    reset_watermarks: bool = False
    max_parallelism: int | None = Field(None, ge=1, le=32768)
    label: m.Text | None = None
    note: m.Text | None = None


class GcBody(m.Body):
    job: m.Text | None = None
    dry_run: bool = False
    older_than_ms: int = Field(3_600_000, ge=0, le=10**13)


class RecoverBody(m.Body):
    dry_run: bool = False


@router.get("/catalog/savepoints", openapi_extra=command("savepoints"))
def savepoints(served: Served, root: RootQuery = None) -> dict[str, Any]:
    """All savepoints below a state root, oldest first."""
    service = served.service
    return savepoints_json(operations.savepoints(service.only, state_root=service.root(root).place))


@router.get("/catalog/tree", openapi_extra=command("tree"))
def tree(served: Served, root: RootQuery = None, job: Annotated[str | None, Query()] = None) -> dict[str, Any]:
    """The history of a job with its forks, or of all jobs: runs and savepoints with their parents, newest first."""
    service = served.service
    return tree_json(operations.tree(service.only or job, state_root=service.root(root).place))


@router.get("/catalog/savepoints/{savepoint}", openapi_extra=command("show"))
def show(savepoint: str, served: Served, root: RootQuery = None) -> dict[str, Any]:
    """A savepoint: operators, states with their types, positions, watermarks."""
    at, path = served.service.savepoint(savepoint, root)
    return savepoint_json(operations.show(path, state_root=at.place))


@router.patch("/catalog/savepoints/{savepoint}", openapi_extra=command("label"))
def label(savepoint: str, body: LabelBody, served: Served, root: RootQuery = None) -> dict[str, Any]:
    """Set the label or note of a savepoint, or both."""
    at, path = served.service.savepoint(savepoint, root)
    named = operations.label(path, body.label, note=body.note, remove=body.remove, force=body.force, state_root=at.place)
    changed = named.savepoint
    return {"id": changed.id, "path": named.path, "label": changed.label, "note": changed.note}


@router.delete("/catalog/savepoints/{savepoint}", openapi_extra=command("dispose"))
def dispose(savepoint: str, served: Served, force: bool = False, root: RootQuery = None) -> dict[str, Any]:
    """Delete a savepoint. Refused while a run or another savepoint depends on it, unless forced."""
    at, path = served.service.savepoint(savepoint, root)
    gone = operations.dispose(path, force=force, state_root=at.place)
    return {"id": gone.id, "path": gone.path, "files": len(gone.files)}


@router.post("/savepoint-disposal", status_code=202, response_model=m.RequestId, openapi_extra=command("dispose"))
def dispose_path(body: m.DisposalBody, request: Request, served: Served) -> m.RequestId:
    """Delete a savepoint by its path below a state root, like Flink's clients."""
    at, path = served.service.savepoint(body.savepoint_path)

    def work(asked: Asked) -> dict[str, Any]:
        gone = operations.dispose(path, state_root=at.place)
        return {"id": gone.id, "path": gone.path, "files": len(gone.files)}

    return served.begin("dispose", None, request, work)


@router.get("/savepoint-disposal/{trigger}", response_model=m.DisposalStatus, response_model_exclude_none=True)
def disposal(trigger: str, served: Served) -> m.DisposalStatus:
    """The status of a disposal."""
    return disposal_status(served.requests.find(trigger, "dispose", None))


@router.get("/catalog/savepoints/{savepoint}/states", openapi_extra=command("state ls"))
def states(savepoint: str, served: Served, root: RootQuery = None) -> dict[str, Any]:
    """The states in a savepoint."""
    at, path = served.service.savepoint(savepoint, root)
    return states_json(operations.states(path, state_root=at.place))


@router.get("/catalog/savepoints/{savepoint}/states/{uid}/{state}", openapi_extra=command("state get"))
def entries(
    savepoint: str,
    uid: str,
    state: str,
    served: Served,
    root: RootQuery = None,
    key: Annotated[str | None, Query(description="text as it is, other types as JSON")] = None,
    limit: Annotated[int, Query(ge=1, le=ROWS)] = 100,
) -> dict[str, Any]:
    """The rows of a state in a savepoint, or of one key."""
    at, path = served.service.savepoint(savepoint, root)
    return entries_json(operations.entries(path, uid, state, key, limit=limit, state_root=at.place))


@router.post("/catalog/savepoints/{savepoint}/query", openapi_extra=command("state query"))
def query(savepoint: str, body: QueryBody, served: Served, root: RootQuery = None) -> dict[str, Any]:
    """Run a SELECT over a savepoint's states, for at most 30 s. The result is cut after 10,000 rows or 16 MiB."""
    at, path = served.service.savepoint(savepoint, root)
    with served.service.querying() as limits:
        return query_json(operations.query(path, body.sql, limits=limits, state_root=at.place))


@router.post("/catalog/savepoints/{savepoint}/edit", status_code=202, response_model=m.RequestId, openapi_extra=command("edit"))
def edit(savepoint: str, body: EditBody, request: Request, served: Served, root: RootQuery = None) -> m.RequestId:
    """Write a changed copy of a savepoint."""
    at, path = served.service.savepoint(savepoint, root)
    if body.label is not None:
        check_label(body.label)
    wanted = EditRequest(
        path,
        remove_uids=body.remove_uids,
        remove_states=[(each.uid, each.state) for each in body.remove_states],
        filters=[StateFilter(each.uid, each.condition, each.state) for each in body.filters],
        positions=body.positions,
        remove_positions=body.remove_positions,
        reset_watermarks=body.reset_watermarks,
        max_parallelism=body.max_parallelism,
        rename_uids=body.rename_uids,
        rename_states={(each.uid, each.state): each.to for each in body.rename_states},
        label=body.label,
        note=body.note,
    )

    return served.begin(
        "edit", None, request, lambda asked: edited_json(operations.edit(wanted, state_root=at.place, observer=asked))
    )


@router.post("/catalog/diffs", status_code=202, response_model=m.RequestId, openapi_extra=command("diff"))
def diff(body: DiffBody, request: Request, served: Served, root: RootQuery = None) -> m.RequestId:
    """Compare two savepoints: entries by operator and state, timers, positions, watermarks."""
    (at, before), (_, after) = (served.service.savepoint(each, root) for each in (body.before, body.after))

    def work(asked: Asked) -> dict[str, Any]:
        found = operations.diff(before, after, samples=body.samples, state_root=at.place, observer=asked)
        return diff_json(found)

    return served.begin("diff", None, request, work)


@router.post("/gc", status_code=202, response_model=m.RequestId, openapi_extra=command("gc"))
def gc(body: GcBody, request: Request, served: Served, root: RootQuery = None) -> m.RequestId:
    """Remove the leftovers of dead runs of a job, or of all jobs, below a state root."""
    service = served.service
    entry = None if body.job is None else service.job(body.job, root)
    place = (service.root(root) if entry is None else entry.root).place
    name = service.only if entry is None else entry.name
    age = timedelta(milliseconds=body.older_than_ms)

    def work(asked: Asked) -> dict[str, Any]:
        return gc_json(operations.gc(name, older_than=age, dry_run=body.dry_run, state_root=place), body.dry_run)

    return served.begin("gc", name, request, work)


@router.post("/jobs/{job}/publish", status_code=202, response_model=m.RequestId, openapi_extra=command("publish"))
def publish(entry: Job, request: Request, served: Served) -> m.RequestId:
    """Publish the committed output that a job's dead driver left unpublished, without starting the job."""

    arguments = ["publish", "--", entry.name]
    return served.begin("publish", entry.name, request, lambda asked: served.commands.run(entry.root, arguments, asked))


@router.post("/jobs/{job}/recover", status_code=202, response_model=m.RequestId, openapi_extra=command("recover"))
def recover(entry: Job, body: RecoverBody, request: Request, served: Served) -> m.RequestId:
    """Make a job resume from its newest undamaged checkpoint or savepoint, if its newest checkpoint is damaged."""

    def work(asked: Asked) -> dict[str, Any]:
        return recovery_json(operations.recover(entry.name, dry_run=body.dry_run, state_root=entry.root.place, observer=asked))

    return served.begin("recover", entry.name, request, work)
