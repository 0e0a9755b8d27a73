"""Writing a savepoint: the files of its states and sources, then the seal, and last savepoint.json."""

from __future__ import annotations

import platform
from collections import defaultdict
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from forkpoint.checkpoint.paths import SAVEPOINT_FILE, state_part, timers_part
from forkpoint.checkpoint.savepoint_manifest import (
    SAVEPOINT,
    Savepoint,
    SavepointFile,
    SavepointOperator,
    SavepointState,
    Versions,
)
from forkpoint.checkpoint.states import StateInfo
from forkpoint.savepoint.directory import clear_place, source_files, write_seal
from forkpoint.savepoint.layout import layout_of
from forkpoint.savepoint.parquet import PartWriter, WrittenPart, put_part
from forkpoint.storage.base import Storage


class NewSavepoint:
    """A savepoint that is being written; its directory is not a savepoint until it is complete.

    Tasks elsewhere may write files of states: each to a ``path`` assigned here, after which ``add`` records it. Raises
    AlreadyExists if the directory holds a savepoint. Files of an earlier attempt are removed.
    """

    def __init__(self, target: Storage) -> None:
        clear_place(target)
        self.target = target
        self._numbers: defaultdict[tuple[str, str | None], int] = defaultdict(int)
        self._paths: dict[tuple[str, str], str] = {}
        self._files: defaultdict[tuple[str, str], list[SavepointFile]] = defaultdict(list)

    def path(self, state: StateInfo) -> str:
        """The next free path of a state. Both time domains' timers share a directory."""
        directory = state.uid, None if state.is_timers else state.name
        number = self._numbers[directory]
        self._numbers[directory] += 1
        path = timers_part(state.uid, number) if state.is_timers else state_part(state.uid, state.name, number)
        self._paths.setdefault((state.uid, state.name), path)
        return path

    def add(self, state: StateInfo, part: WrittenPart | None, kg_start: int, kg_stop: int) -> None:
        """Record a written file and its range of key groups; None if there were no rows."""
        if part is not None:
            self._files[state.uid, state.name].append(part.file(kg_start, kg_stop))

    def operator(self, uid: str, name: str, kind: str, states: Sequence[StateInfo]) -> SavepointOperator:
        """An operator for ``savepoint.json``, with the files added so far.

        A state without rows gets a file without rows, which has its columns.
        """
        key_type = next((state.key_type for state in states if state.key_type is not None), None)
        written = [self._state(state) for state in states]
        return SavepointOperator(uid=uid, name=name, kind=kind, key_type=key_type, states=written)

    def complete(self, savepoint: Savepoint) -> None:
        """Write all other files, and then ``savepoint.json``. Raises AlreadyExists."""
        for uid, position in savepoint.sources.items():
            for path, data in source_files(uid, position).items():
                self.target.put(path, data)
        content = SAVEPOINT.dump(savepoint)
        write_seal(self.target, content)
        self.target.create(SAVEPOINT_FILE, content)

    def _state(self, state: StateInfo) -> SavepointState:
        address = state.uid, state.name
        if address not in self._files:
            path = self._paths.get(address) or self.path(state)
            self.add(state, put_part(self.target, path, PartWriter(layout_of(state))), 0, 0)
        files = self._files[address]
        entries, size = sum(file.entries for file in files), sum(file.bytes for file in files)
        return SavepointState(info=state, entries=entries, bytes=size, files=files)


def written_by(spark: str | None) -> Versions:
    """The software that writes; ``spark``: Spark's version, None if Spark is not involved."""
    try:
        forkpoint = version("forkpoint")
    except PackageNotFoundError:  # run from a source tree that is not installed
        forkpoint = "unknown"
    return Versions(forkpoint=forkpoint, python=platform.python_version(), spark=spark)
