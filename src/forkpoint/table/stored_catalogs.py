"""Catalogues that are kept under the state root, as files.

Each change is a new version of the catalogue's file, which only one of several writers can create; the others add their changes
to it and try again. Versions are small, and stay.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import msgspec

from forkpoint.checkpoint.format import Format, Record
from forkpoint.checkpoint.paths import CATALOGS, catalog_file, parse_catalog_file
from forkpoint.errors import AlreadyExists, ConfigError
from forkpoint.storage.base import Storage

_DATABASE = "DATABASE "


class Definition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table, view or function. ``space``: the catalogue and database in which the statement looks for names."""

    sql: str
    space: tuple[str, str]


class Content(Record, frozen=True, kw_only=True):
    """A version of a catalogue. ``definitions``: by kind and path, as in ``TABLE prod.sales.orders``."""

    format_version: Literal[1] = 1
    databases: list[str] = msgspec.field(default_factory=list)
    definitions: dict[str, Definition] = msgspec.field(default_factory=dict)
    dropped: bool = False


CONTENT = Format("catalogue", Content, 1)
Version: TypeAlias = tuple[int, Content]
NEW: Version = 0, Content(dropped=True)


@dataclass
class StoredCatalogs:
    """The catalogues that a session has read, also dropped ones. ``unusable``: definitions that cannot be executed here, by
    catalogue."""

    known: dict[str, Version] = field(default_factory=dict)
    unusable: dict[str, set[str]] = field(default_factory=dict)
    loaded: bool = False


def newest_versions(storage: Storage) -> dict[str, int]:
    """The newest version of each catalogue."""
    return dict(map(parse_catalog_file, storage.list(CATALOGS)))  # sorted, so the newest is the last


def read(storage: Storage, name: str, version: int) -> Version:
    return version, CONTENT.load(storage, catalog_file(name, version))


def write(storage: Storage, name: str, known: Version, new: Content) -> Version:
    """Store a new version, with what others have changed since the known one. Raises ConfigError if they changed the same."""
    version, old = known
    while True:
        try:
            storage.create(catalog_file(name, version + 1), CONTENT.dump(new))
            return version + 1, new
        except AlreadyExists:
            version, latest = read(storage, name, newest_versions(storage)[name])
            old, new = latest, _merged(name, old, new, latest)


def _merged(name: str, old: Content, new: Content, latest: Content) -> Content:
    if old.dropped != latest.dropped or new.dropped:
        raise _changed(f"catalogue {name!r}")
    before, after, theirs = map(_parts, (old, new, latest))
    for key in (key for key in before.keys() | after.keys() if before.get(key) != after.get(key)):
        if theirs.get(key) not in (before.get(key), after.get(key)):
            raise _changed(f"{key} of catalogue {name!r}")
        theirs[key] = after.get(key)
    found = {key: each for key, each in theirs.items() if each is not None}
    return Content(
        databases=[key.removeprefix(_DATABASE) for key, each in found.items() if each is True],
        definitions={key: each for key, each in found.items() if isinstance(each, Definition)},
    )


def _changed(what: str) -> ConfigError:
    return ConfigError(f"somebody else has changed {what} at the same time; look at it, and try again")


def _parts(content: Content) -> dict[str, Definition | Literal[True] | None]:
    databases: dict[str, Definition | Literal[True] | None] = {f"{_DATABASE}{name}": True for name in content.databases}
    return databases | content.definitions
