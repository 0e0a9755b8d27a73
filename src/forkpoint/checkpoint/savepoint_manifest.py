"""savepoint.json: the contents of a savepoint. It is written last; a directory without it is not a savepoint."""

from __future__ import annotations

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


class SavepointFile(KeyGroups, frozen=True, kw_only=True):
    """One part of a state. The path is relative to the savepoint's directory, the checksum is SHA-256 in hex."""

    path: str
    entries: Count
    bytes: Count
    checksum: Sha256

    def __post_init__(self) -> None:
        super().__post_init__()
        check_relative(self.path)


class SavepointState(Record, frozen=True, kw_only=True):
    """One state of an operator. `entries` and `bytes` are the sums over `files`. In savepoint.json, the fields of `info` are
    inlined, without sid and uid, which follow from the operator."""

    info: StateInfo
    entries: Count
    bytes: Count
    files: list[SavepointFile] = field(default_factory=list)

    def __post_init__(self) -> None:
        entries, size = sum(file.entries for file in self.files), sum(file.bytes for file in self.files)
        if (entries, size) != (self.entries, self.bytes):
            raise ValueError(
                f"state {self.info.name} has {self.entries} entries in {self.bytes} bytes, its files {entries} in {size}"
            )


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
    `schedule_ms`: the interval of the schedule that made it. Times are milliseconds since 1970 UTC."""

    format_version: Literal[1] = 1
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


_DESCRIBED = tuple(name for name in StateInfo.__struct_fields__ if name not in ("sid", "uid"))


def _flat(info: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {**{name: info[name] for name in _DESCRIBED}, **fields}


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


SAVEPOINT = Format(SAVEPOINT_FILE, Savepoint, 1)


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
