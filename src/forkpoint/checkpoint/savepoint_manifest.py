"""savepoint.json: the contents of a savepoint. It is written last; a directory without it is not a savepoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta, field

from forkpoint.checkpoint.format import Format, Record
from forkpoint.checkpoint.manifest import (
    Count,
    Epoch,
    KeyGroups,
    Name,
    Parallelism,
    Parent,
    Sha256,
    SourcePosition,
    check_relative,
)
from forkpoint.checkpoint.paths import SAVEPOINT_FILE, within
from forkpoint.checkpoint.states import StateInfo, state_id
from forkpoint.errors import NotFound, SavepointNotFound
from forkpoint.storage.base import Storage


class Versions(Record, frozen=True, kw_only=True):
    """The software that wrote the savepoint; `spark` is None for the local engine."""

    forkpoint: str
    python: str
    spark: str | None = None


class ChangesFile(Record, frozen=True, kw_only=True):
    """Entries that replace, remove or extend those of an earlier file. `savepoint`: the directory beside this savepoint's that
    has the file, if it is a file of an earlier savepoint."""

    path: str
    entries: Count
    bytes: Count
    checksum: Sha256
    savepoint: str | None = None

    def __post_init__(self) -> None:
        check_relative(self.path)
        check_beside(self.savepoint)


class SavepointFile(KeyGroups, frozen=True, kw_only=True):
    """One part of a state. The path is relative to the savepoint's directory, or to that of `savepoint` (see `ChangesFile`). The
    checksum is SHA-256 in hex. `entries`: of the file. `changes`: later entries of these key groups, oldest first, with which
    there are `merged` entries."""

    path: str
    entries: Count
    bytes: Count
    checksum: Sha256
    savepoint: str | None = None
    changes: list[ChangesFile] = field(default_factory=list)
    merged: Count | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_relative(self.path)
        check_beside(self.savepoint)
        if bool(self.changes) != (self.merged is not None):
            raise ValueError(f"{self.path} has {len(self.changes)} files of changes, and {self.merged} merged entries")

    @property
    def total(self) -> int:
        """The number of entries with all changes."""
        return self.entries if self.merged is None else self.merged

    @property
    def layers(self) -> list[SavepointFile | ChangesFile]:
        """The file, and its changes, oldest first."""
        return [self, *self.changes]


def check_beside(name: str | None) -> None:
    """Raise ValueError unless it can be the name of a savepoint's directory beside another one."""
    if name is not None:
        check_relative(name)
        if "/" in name:
            raise ValueError(f"{name!r} is not the name of a directory beside the savepoint")


class SavepointState(Record, frozen=True, kw_only=True):
    """One state of an operator. `entries` and `bytes` are the sums over `files` and their changes. In savepoint.json, the
    fields of `info` are inlined, without sid and uid, which follow from the operator."""

    info: StateInfo
    entries: Count
    bytes: Count
    files: list[SavepointFile] = field(default_factory=list)

    def __post_init__(self) -> None:
        entries, size = sums(self.files)
        if (entries, size) != (self.entries, self.bytes):
            raise ValueError(
                f"state {self.info.name} has {self.entries} entries in {self.bytes} bytes, its files {entries} in {size}"
            )


def sums(files: Sequence[SavepointFile]) -> tuple[int, int]:
    """The entries of files with their changes, and the bytes of all of them."""
    return sum(file.total for file in files), sum(layer.bytes for file in files for layer in file.layers)


class SavepointOperator(Record, frozen=True, kw_only=True):
    uid: Name
    name: str
    kind: str
    key_type: Any = None
    states: list[SavepointState] = field(default_factory=list)


class UnreadableEntry(Record, frozen=True, kw_only=True):
    """An entry that could not be read: a description of its key, and the reason."""

    key: str
    why: str


class LeftOutState(Record, frozen=True, kw_only=True):
    """The number of unreadable entries of a state that the savepoint leaves out, and some examples."""

    uid: Name
    state: Name
    entries: Count
    examples: list[UnreadableEntry] = field(default_factory=list)


class Savepoint(Record, frozen=True, kw_only=True):
    """savepoint.json. `parent`: the parent of the run that took it; for an `edited` savepoint, which no run took, its original.
    `schedule_ms`: the interval of the schedule that made it. Times are milliseconds since 1970 UTC.

    `format_version`: 2 if it refers to files of other savepoints or has changes, which earlier releases cannot read."""

    format_version: Literal[1, 2] = 1
    id: Name
    job: Name
    run: Name
    epoch: Epoch
    created_ms: int
    parent: Parent = field(default_factory=Parent)
    label: str | None = None
    note: str | None = None
    drained: bool = False
    edited: bool = False
    schedule_ms: Annotated[int, Meta(gt=0)] | None = None
    versions: Versions
    code_version: str | None = None
    max_parallelism: Parallelism
    parallelism: Parallelism
    sources: dict[str, SourcePosition] = field(default_factory=dict)
    watermarks: dict[str, int] = field(default_factory=dict)
    input_watermarks: dict[str, list[int]] = field(default_factory=dict)
    operators: list[SavepointOperator] = field(default_factory=list)
    left_out: list[LeftOutState] = field(default_factory=list)

    @property
    def age(self) -> tuple[int, int, str]:
        """Sorts savepoints from oldest to newest."""
        return self.created_ms, self.epoch, self.id

    def __post_init__(self) -> None:
        seen: set[tuple[str, str | None]] = set()
        for operator in self.operators:
            for key in [(operator.uid, None), *((operator.uid, state.info.name) for state in operator.states)]:
                if key in seen:
                    raise ValueError(f"{'/'.join(part for part in key if part)} is a duplicate")
                seen.add(key)
        if self.format_version != (needed := needed_version(self.operators)):
            raise ValueError(f"its files need format {needed}")

    @property
    def files(self) -> Iterator[SavepointFile]:
        """The files of all states."""
        return (file for operator in self.operators for state in operator.states for file in state.files)

    @property
    def referred(self) -> dict[str, list[str]]:
        """The files of other savepoints that it refers to, by their directory beside this one's."""
        found: dict[str, list[str]] = {}
        for file in self.files:
            for layer in file.layers:
                if layer.savepoint is not None:
                    found.setdefault(layer.savepoint, []).append(layer.path)
        return found

    @property
    def own_bytes(self) -> int:
        """The bytes of the files that are its own."""
        return sum(layer.bytes for file in self.files for layer in file.layers if layer.savepoint is None)

    def content(self) -> dict[str, Any]:
        content = super().content()
        for operator in content["operators"]:
            operator["states"] = [_flat(**state) for state in operator["states"]]
        return content

    @staticmethod
    def fields_of(content: Any) -> Any:
        match content:
            case {"operators": [*operators]}:
                return {**content, "operators": [_with_infos(operator) for operator in operators]}
        return content


def needed_version(operators: Sequence[SavepointOperator]) -> Literal[1, 2]:
    """The format that savepoint.json with these operators has."""
    files = (file for operator in operators for state in operator.states for file in state.files)
    return 2 if any(file.savepoint is not None or file.changes for file in files) else 1


_OPTIONAL = ("savepoint", "changes", "merged")  # which earlier releases do not know
_DESCRIBED = tuple(name for name in StateInfo.__struct_fields__ if name not in ("sid", "uid"))


def _flat(info: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {**{name: info[name] for name in _DESCRIBED}, **fields, "files": [_given(file) for file in fields["files"]]}


def _given(file: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in file.items() if name not in _OPTIONAL or value not in (None, [])}


def _with_infos(operator: Any) -> Any:
    match operator:
        case {"uid": str(uid), "states": [*states]}:
            return {**operator, "states": [_with_info(uid, state) for state in states]}
    return operator


def _with_info(uid: str, flat: Any) -> Any:
    if not isinstance(flat, dict):
        return flat
    described = {name: value for name, value in flat.items() if name in _DESCRIBED}
    others = {name: value for name, value in flat.items() if name not in _DESCRIBED}
    return {"info": {"sid": state_id(uid, str(flat.get("name"))), "uid": uid, **described}, **others}


SAVEPOINT = Format(SAVEPOINT_FILE, Savepoint, 2, also=(1,))


def load_savepoint(storage: Storage, directory: str = "") -> Savepoint:
    """Read the savepoint in `directory` of `storage`. Raises SavepointNotFound and SavepointCorrupt."""
    try:
        return SAVEPOINT.load(storage, within(directory, SAVEPOINT_FILE))
    except NotFound:
        raise no_savepoint(storage, directory) from None


def no_savepoint(storage: Storage, directory: str) -> SavepointNotFound:
    return SavepointNotFound(
        f"{within(storage.url, directory)} is not a savepoint: it has no {SAVEPOINT_FILE}, which is written last; "
        f"name the directory of a complete savepoint"
    )
