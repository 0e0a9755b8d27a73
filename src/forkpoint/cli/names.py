"""Completes names below the state root: jobs, savepoints, uids and states. Imports little, because each completion is a separate
process."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import click
from click.shell_completion import CompletionItem

from forkpoint.checkpoint.paths import JOBS, SAVEPOINT_FILE, SAVEPOINTS, unescape, within
from forkpoint.config_file import CONFIG, DEFAULT_STATE_ROOT
from forkpoint.config_file import state_root as configured
from forkpoint.errors import StorageError
from forkpoint.storage.base import LocalStorage, Storage, open_storage
from forkpoint.storage.places import absolute

_LABEL_FILE = "label.json"
_MAX_SAVEPOINTS = 300  # reads only the newest

Complete = Callable[["Names", click.Context], Iterable[tuple[str, str]]]


class Names:
    """The names below a state root, from directories and savepoint.json files. Leaves out unreadable ones."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def jobs(self) -> list[str]:
        return sorted(unescape(name) for name in self._children(JOBS))

    def savepoints(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Savepoints' names and contents of savepoint.json, with the current label. Newest first: ids sort by time."""
        directories = [
            (name, f"{SAVEPOINTS}/{job}/{name}")
            for job in self._children(SAVEPOINTS)
            for name in self._children(f"{SAVEPOINTS}/{job}")
        ]
        for name, directory in sorted(directories, reverse=True)[:_MAX_SAVEPOINTS]:
            found = _load(self._storage, within(directory, SAVEPOINT_FILE))
            if found is not None:
                label = _load(self._storage, within(directory, _LABEL_FILE)) or {}
                yield unescape(name), {**found, **(label if label.get("savepoint") == found.get("id") else {})}

    def operators(self, savepoint: str | None) -> Iterator[Mapping[str, Any]]:
        """The operators of a savepoint (path, URL, id or label; None or `latest`: the newest)."""
        if savepoint is not None and "/" in savepoint:
            found: Mapping[str, Any] | None = _load(open_storage(absolute(savepoint)), SAVEPOINT_FILE)
        else:
            wanted = None if savepoint in ("latest", "none") else savepoint
            matching = (s for name, s in self.savepoints() if wanted is None or wanted in (name, s.get("label")))
            found = next(matching, None)
        yield from () if found is None else found["operators"]

    def sources(self, savepoint: str | None) -> Iterator[str]:
        wanted = None if savepoint in ("latest", "none") else savepoint
        for name, found in self.savepoints():
            if wanted is None or wanted in (name, found.get("label")):
                yield from found.get("sources", {})
                return

    def _children(self, directory: str) -> list[str]:
        if isinstance(self._storage, LocalStorage):  # to list all files of a large state root takes seconds
            try:
                return [entry.name for entry in os.scandir(os.path.join(self._storage.root, directory)) if entry.is_dir()]
            except FileNotFoundError:
                return []
        inside = (path.removeprefix(f"{directory}/") for path in self._storage.list(directory))
        return sorted({path.split("/")[0] for path in inside if "/" in path})


def _load(storage: Storage, path: str) -> dict[str, Any] | None:
    try:
        found = json.loads(storage.read(path))
    except (StorageError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def state_root(ctx: click.Context | None) -> str:
    """The state root that the incomplete command line uses."""
    at = ctx
    while at is not None:
        if (file := at.params.get("config")) is not None:
            os.environ[CONFIG] = str(file)
        at = at.parent
    while ctx is not None:
        if (given := ctx.params.get("state_root")) is not None:
            return absolute(str(given))
        ctx = ctx.parent
    return absolute(configured() or DEFAULT_STATE_ROOT)


class NameType(click.types.StringParamType):
    """The name of an object below the state root."""

    def __init__(self, name: str, complete: Complete) -> None:
        self.name = name
        self._complete = complete

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        if "/" in incomplete:  # a path
            return [CompletionItem(incomplete, type="file")]
        found = dict(reversed(list(self._complete(Names(open_storage(state_root(ctx))), ctx))))
        return [
            CompletionItem(value, help=help_text or None)
            for value, help_text in sorted(found.items())
            # The shell would read other text as control sequences or several lines.
            if value.startswith(incomplete) and value.isprintable() and help_text.isprintable()
        ]


def _savepoint_of(ctx: click.Context) -> str | None:
    """The savepoint on the command line, as an argument or option."""
    given = ctx.params.get("savepoint") or ctx.params.get("origin")
    return None if given is None else str(given)


def _jobs(names: Names, ctx: click.Context) -> Iterator[tuple[str, str]]:
    return ((job, "") for job in names.jobs())


def _savepoints(names: Names, ctx: click.Context) -> Iterator[tuple[str, str]]:
    for name, found in names.savepoints():
        of_job = f"job {found.get('job')}, epoch {found.get('epoch')}"
        label = found.get("label")
        if label is not None:
            yield str(label), f"{name}, {of_job}"
        yield name, of_job if label is None else f"{label}, {of_job}"


def _savepoints_and_latest(names: Names, ctx: click.Context) -> Iterator[tuple[str, str]]:
    yield "latest", "the newest savepoint"
    yield from _savepoints(names, ctx)


def _restored(names: Names, ctx: click.Context) -> Iterator[tuple[str, str]]:
    yield from _savepoints_and_latest(names, ctx)
    yield "none", "start with empty state"


def _uids(names: Names, ctx: click.Context) -> Iterator[tuple[str, str]]:
    for operator in names.operators(_savepoint_of(ctx)):
        yield operator["uid"], operator.get("kind", "")


def _source_uids(names: Names, ctx: click.Context) -> Iterator[tuple[str, str]]:
    return ((uid, "source") for uid in names.sources(_savepoint_of(ctx)))


def _states(names: Names, ctx: click.Context) -> Iterator[tuple[str, str]]:
    for operator in names.operators(_savepoint_of(ctx)):
        if operator["uid"] == ctx.params.get("uid"):
            yield from ((state["name"], state.get("kind", "")) for state in operator["states"])
            yield "timers", ""


def _states_of_uids(names: Names, ctx: click.Context) -> Iterator[tuple[str, str]]:
    for operator in names.operators(_savepoint_of(ctx)):
        yield from ((f"{operator['uid']}.{state['name']}", state.get("kind", "")) for state in operator["states"])


JOB = NameType("job", _jobs)
SAVEPOINT = NameType("savepoint", _savepoints)
SAVEPOINT_OR_LATEST = NameType("savepoint or latest", _savepoints_and_latest)
RESTORED = NameType("savepoint, latest or none", _restored)
JOB_OR_SAVEPOINT = NameType("job or savepoint", lambda names, ctx: chain(_jobs(names, ctx), _savepoints(names, ctx)))
UID = NameType("uid", _uids)
SOURCE_UID = NameType("uid of a source", _source_uids)
ANY_UID = NameType("uid of an operator or source", lambda names, ctx: chain(_uids(names, ctx), _source_uids(names, ctx)))
STATE = NameType("state", _states)
UID_STATE = NameType("uid and state", _states_of_uids)
TYPES = {
    each.name: each
    for each in (JOB, SAVEPOINT, SAVEPOINT_OR_LATEST, RESTORED, JOB_OR_SAVEPOINT, UID, SOURCE_UID, ANY_UID, STATE, UID_STATE)
}


class PlaceType(click.types.StringParamType):
    """A directory's path, or a URL."""

    name = "place"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type="dir")]
