"""References between savepoints in the same directory: which files of a savepoint later ones need.

A savepoint that refers to files of another one first writes ``references/<its directory>.json`` into that one's directory, then
checks that the savepoint it builds on still exists, and only then relies on the files. Who disposes of a savepoint first deletes
its ``savepoint.json``, then looks for references, and keeps the files that they name. So either the reference is seen, or the
missing ``savepoint.json`` is. The files that are kept go with the last reference.

A reference counts even if its savepoint is unfinished or gone: only ``forkpoint gc`` removes such ones, once they are old.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from forkpoint.checkpoint.format import Format, Record
from forkpoint.checkpoint.manifest import Name
from forkpoint.checkpoint.paths import SAVEPOINT_FILE, within
from forkpoint.errors import ConfigError, NotFound, SavepointCorrupt
from forkpoint.storage.base import LocalStorage, Storage, open_storage

log = logging.getLogger("forkpoint")

_DIRECTORY = "references"
_REFERENCE = re.compile(rf"{_DIRECTORY}/([^/]+)\.json")


class Reference(Record, frozen=True, kw_only=True):
    """The files of a savepoint's directory, relative to it, that the savepoint in the directory ``savepoint`` beside it needs."""

    format_version: Literal[1] = 1
    savepoint: Name
    files: list[str]


REFERENCE = Format("reference", Reference, 1)


def parent_of(directory: str) -> str:
    """The directory around one; "" for the root."""
    return directory.rpartition("/")[0]


def storage_around(storage: Storage) -> tuple[Storage, str]:
    """The directory around a storage's root, as a storage, and the root's name in it. Raises ConfigError if there is none."""
    if isinstance(storage, LocalStorage):
        return LocalStorage(os.path.dirname(storage.root)), os.path.basename(storage.root)
    around, _, name = storage.url.rstrip("/").rpartition("/")
    if around.endswith("/"):
        raise ConfigError(f"{storage.url} has no directory around it, in which savepoints could refer to each other")
    return open_storage(around), name


def is_reference(path: str) -> bool:
    """Whether a path, relative to a savepoint's directory, names a reference to its files."""
    return _REFERENCE.fullmatch(path) is not None


def references(storage: Storage, directory: str) -> Iterator[tuple[str, str]]:
    """The paths of all references to a directory's files, and the names of the directories that need them."""
    prefix = within(directory, _DIRECTORY)
    for path in storage.list(prefix):
        if (match := _REFERENCE.fullmatch(within(_DIRECTORY, path.removeprefix(f"{prefix}/")))) is not None:
            yield path, match[1]


def referred(storage: Storage, directory: str = "") -> set[str]:
    """The files, relative to the directory, that must stay if its savepoint goes, because other savepoints refer to them: all of
    them if a reference is damaged."""
    directory = directory.rstrip("/")
    while True:
        try:
            return {file for path, _ in references(storage, directory) for file in _files(storage, directory, path)}
        except NotFound:
            # Withdrawn meanwhile: but only after a savepoint on top of the one that withdrew it announced its own.
            continue


def _files(storage: Storage, directory: str, path: str) -> list[str]:
    try:
        return REFERENCE.load(storage, path).files
    except SavepointCorrupt as error:
        log.warning("%s; all files of %s stay", error, within(storage.url, directory))
        return [each.removeprefix(f"{directory}/") for each in storage.list(directory)]


def refer(storage: Storage, directory: str, needed: Mapping[str, Sequence[str]]) -> None:
    """Announce that the savepoint in ``directory`` needs these files, by the directory beside it that has them."""
    name = directory.rpartition("/")[2]
    for other, files in needed.items():
        path = _reference(within(parent_of(directory), other), name)
        storage.put(path, REFERENCE.dump(Reference(savepoint=name, files=sorted(set(files)))))


def withdraw(storage: Storage, directory: str, others: Sequence[str]) -> list[str]:
    """Withdraw the references of the savepoint in ``directory``, which needs no files any more, and return the directories that
    are no savepoint and whose files can be removed, unless others need them."""
    left = []
    for other in others:
        beside = within(parent_of(directory), other)
        storage.delete(_reference(beside, directory.rpartition("/")[2]))
        if not storage.exists(within(beside, SAVEPOINT_FILE)):
            left.append(beside)
    return left


def stale(storage: Storage, directory: str) -> list[str]:
    """The references to a directory's files by savepoints that do not exist, or not yet."""
    around = parent_of(directory)
    return [
        path for path, name in references(storage, directory) if not storage.exists(within(within(around, name), SAVEPOINT_FILE))
    ]


def _reference(directory: str, by: str) -> str:
    return within(directory, f"{_DIRECTORY}/{by}.json")
