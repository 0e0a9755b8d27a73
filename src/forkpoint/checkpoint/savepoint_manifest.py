"""savepoint.json: what a savepoint holds. It is written last; a directory without it is not a savepoint."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue, model_validator

from forkpoint.checkpoint.format import Format, Record, verify
from forkpoint.checkpoint.manifest import (
    Count,
    Epoch,
    KeyGroups,
    Name,
    Parallelism,
    Parent,
    RelativePath,
    Sha256,
    SourcePosition,
    StateKind,
)
from forkpoint.checkpoint.paths import SAVEPOINT_FILE
from forkpoint.errors import NotFound, SavepointNotFound
from forkpoint.storage.base import Storage

SAVEPOINT_FORMAT_VERSION = 1


class Versions(Record):
    """The software that wrote the savepoint; `spark` is None for the local engine."""

    forkpoint: str
    python: str
    spark: str | None = None


class SavepointFile(KeyGroups):
    """One part of a state, its path relative to the savepoint's directory. The checksum is SHA-256 in hex."""

    path: RelativePath
    entries: Count
    bytes: Count
    checksum: Sha256


class SavepointState(Record):
    """One state of an operator; types are descriptions (`TypeInformation.describe()`), None where there is no such
    part. `entries` and `bytes` are the sums over `files`. `version` and `key_version` as in the manifest."""

    name: Name
    kind: StateKind
    key_type: JsonValue = None
    value_type: JsonValue = None
    namespace_type: JsonValue = None
    ttl_ms: Annotated[int, Field(gt=0)] | None = None
    fingerprint: str | None = None
    version: Annotated[int, Field(ge=1)] = 1
    key_version: Annotated[int, Field(ge=1)] = 1
    entries: Count
    bytes: Count
    files: list[SavepointFile] = Field(default_factory=list)

    @model_validator(mode="after")
    def _sums(self) -> SavepointState:
        entries, size = sum(file.entries for file in self.files), sum(file.bytes for file in self.files)
        if (entries, size) != (self.entries, self.bytes):
            raise ValueError(
                f"state {self.name} has {self.entries} entries in {self.bytes} bytes, its files {entries} in {size}"
            )
        return self


class SavepointOperator(Record):
    uid: Name
    name: str
    kind: str
    key_type: JsonValue = None
    states: list[SavepointState] = Field(default_factory=list)


class UnreadableEntry(Record):
    """An entry that could not be read: where it was in words, and why."""

    key: str
    why: str


class LeftOutState(Record):
    """What of a state is not in the savepoint, because it could not be read: how many entries, and some of them."""

    uid: Name
    state: Name
    entries: Count
    examples: list[UnreadableEntry] = Field(default_factory=list)


class Savepoint(Record):
    """savepoint.json. `parent` is what the run that took it came from; of one that is `edited`, which no run took, it is
    the savepoint that it was made from. `schedule_ms`: of one that a schedule made, how often that does. Times are
    milliseconds since 1970 UTC."""

    format_version: Literal[1] = 1
    id: Name
    job: Name
    run: Name
    epoch: Epoch
    created_ms: int
    parent: Parent = Parent()
    label: str | None = None
    note: str | None = None
    drained: bool = False
    edited: bool = False
    schedule_ms: Annotated[int, Field(gt=0)] | None = None
    versions: Versions
    code_version: str | None = None
    max_parallelism: Parallelism
    parallelism: Parallelism
    sources: dict[str, SourcePosition] = Field(default_factory=dict)
    watermarks: dict[str, int] = Field(default_factory=dict)
    input_watermarks: dict[str, list[int]] = Field(default_factory=dict)
    operators: list[SavepointOperator] = Field(default_factory=list)
    left_out: list[LeftOutState] = Field(default_factory=list)

    @model_validator(mode="after")
    def _distinct(self) -> Savepoint:
        seen: set[tuple[str, str | None]] = set()
        for operator in self.operators:
            for key in [(operator.uid, None), *((operator.uid, state.name) for state in operator.states)]:
                if key in seen:
                    raise ValueError(f"{'/'.join(part for part in key if part)} is there twice")
                seen.add(key)
        return self


SAVEPOINT = Format(SAVEPOINT_FILE, Savepoint, SAVEPOINT_FORMAT_VERSION)


def load_savepoint(storage: Storage, directory: str = "") -> Savepoint:
    """Read the savepoint in `directory` of `storage`. Raises SavepointNotFound and SavepointCorrupt."""
    try:
        return SAVEPOINT.load(storage, _within(directory, SAVEPOINT_FILE))
    except NotFound:
        raise SavepointNotFound(
            f"{_within(storage.url, directory)} is not a savepoint: it has no {SAVEPOINT_FILE}, which is written last; "
            f"name the directory of a complete savepoint"
        ) from None


def save_savepoint(storage: Storage, savepoint: Savepoint, directory: str = "") -> None:
    """Complete the savepoint in `directory`; all its other files must be there. Raises AlreadyExists."""
    storage.create(_within(directory, SAVEPOINT_FILE), SAVEPOINT.dump(savepoint))


def read_savepoint_file(storage: Storage, file: SavepointFile, directory: str = "") -> bytes:
    """The content of one part, verified. Raises NotFound, and SavepointCorrupt naming the file and both values."""
    path = _within(directory, file.path)
    return verify(storage.read(path), file.checksum, file.bytes, _within(storage.url, path))


def _within(directory: str, path: str) -> str:
    return "/".join(part for part in (directory.rstrip("/"), path) if part)
