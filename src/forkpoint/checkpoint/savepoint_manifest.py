"""savepoint.json: the contents of a savepoint. It is written last; a directory without it is not a savepoint."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)

from forkpoint.checkpoint.format import Format, Record
from forkpoint.checkpoint.manifest import Count, Epoch, KeyGroups, Name, Parallelism, Parent, RelativePath, Sha256, SourcePosition
from forkpoint.checkpoint.paths import SAVEPOINT_FILE, within
from forkpoint.checkpoint.states import StateInfo, state_id
from forkpoint.errors import NotFound, SavepointNotFound
from forkpoint.storage.base import Storage


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
    """One state of an operator. `entries` and `bytes` are the sums over `files`.

    In savepoint.json, `info` is flattened, without sid and uid, which follow from the operator.
    """

    info: StateInfo
    entries: Count
    bytes: Count
    files: list[SavepointFile] = Field(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def _unflattened(cls, content: Any) -> Any:
        match content:
            case str(uid), dict(flat):
                described = {key: value for key, value in flat.items() if key in _DESCRIBED}
                sid = state_id(uid, str(flat.get("name")))
                info = StateInfo.model_validate({"sid": sid, "uid": uid, **described})
                return {"info": info, **{key: value for key, value in flat.items() if key not in _DESCRIBED}}
        return content

    @model_serializer(mode="wrap")
    def _flattened(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        content = dump(self)
        info = content.pop("info")
        return {**{key: info[key] for key in _DESCRIBED}, **content}

    @model_validator(mode="after")
    def _sums(self) -> SavepointState:
        entries, size = sum(file.entries for file in self.files), sum(file.bytes for file in self.files)
        if (entries, size) != (self.entries, self.bytes):
            raise ValueError(
                f"state {self.info.name} has {self.entries} entries in {self.bytes} bytes, its files {entries} in {size}"
            )
        return self


_DESCRIBED = tuple(key for key in StateInfo.model_fields if key not in ("sid", "uid"))


class SavepointOperator(Record):
    uid: Name
    name: str
    kind: str
    key_type: JsonValue = None
    states: list[SavepointState] = Field(default_factory=list)

    @field_validator("states", mode="before")
    @classmethod
    def _with_uid(cls, states: Any, validated: ValidationInfo) -> Any:
        if not isinstance(states, list):
            return states
        uid = validated.data.get("uid", "?")  # an invalid uid has its own error
        return [(uid, state) if isinstance(state, dict) else state for state in states]


class UnreadableEntry(Record):
    """An entry that could not be read: a description of its key, and the reason."""

    key: str
    why: str


class LeftOutState(Record):
    """The entries of a state that were left out because they could not be read: their number, and some examples."""

    uid: Name
    state: Name
    entries: Count
    examples: list[UnreadableEntry] = Field(default_factory=list)


class Savepoint(Record):
    """savepoint.json. `parent` is the parent of the run that took it; for an `edited` one, which no run took, it is the
    savepoint that it was made from. `schedule_ms`: the interval of the schedule that made it. Times are milliseconds since
    1970 UTC."""

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

    @property
    def age(self) -> tuple[int, int, str]:
        """Sorts savepoints from oldest to newest."""
        return self.created_ms, self.epoch, self.id

    @model_validator(mode="after")
    def _distinct(self) -> Savepoint:
        seen: set[tuple[str, str | None]] = set()
        for operator in self.operators:
            for key in [(operator.uid, None), *((operator.uid, state.info.name) for state in operator.states)]:
                if key in seen:
                    raise ValueError(f"{'/'.join(part for part in key if part)} is there twice")
                seen.add(key)
        return self


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
