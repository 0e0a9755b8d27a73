"""JSON files that outlive a run: format versions, one-step upgrades, checksums, and precise errors."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar

import msgspec
from msgspec import Struct, ValidationError

from forkpoint.decoders import convert
from forkpoint.errors import NotFound, SavepointCorrupt
from forkpoint.storage.base import Storage

log = logging.getLogger("forkpoint")

_SHOWN = 120  # characters of an offending value in a message

Upgrade = Callable[[dict[str, Any]], dict[str, Any]]
"""Converts the parsed file of version v to version v + 1, without `format_version`."""


class Record(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all stored records: frozen, without unknown fields and conversions between JSON types.

    Do not change lists and dicts in a record either. NaN and infinities, which JSON lacks, are preserved. Fields are validated
    when a record is read (``from_content``) and written (``Format.dump``); ``__post_init__`` validates constraints between them.
    """

    def replace(self, **fields: Any) -> Self:
        """The record with other values of these fields."""
        return msgspec.structs.replace(self, **fields)

    def content(self) -> dict[str, Any]:
        """The record as JSON values."""
        content: dict[str, Any] = msgspec.to_builtins(self, enc_hook=repr)  # `Format.dump` refuses values that repr changes
        return content

    @classmethod
    def from_content(cls, content: Any) -> Self:
        """The record with this content. Raises ValidationError."""
        return convert(cls.fields_of(content), cls)

    @staticmethod
    def fields_of(content: Any) -> Any:
        """The content, which may have any form, with the record's fields."""
        return content


R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class Format(Generic[R]):
    """Reads and writes one kind of file.

    `model` describes version `version`, which its field `format_version` accepts. `upgrades[v]` converts a parsed
    file of version v to version v + 1; reading applies as many as needed. `also`: versions that the model accepts, too.
    """

    name: str
    model: type[R]
    version: int
    upgrades: Mapping[int, Upgrade] = field(default_factory=dict)
    also: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if sorted(self.upgrades) != list(range(min(self.upgrades, default=self.version), self.version)):
            raise ValueError(f"{self.name}: upgrades {sorted(self.upgrades)} do not lead to version {self.version}")

    @property
    def oldest(self) -> int:
        """The oldest readable version."""
        return min([*self.upgrades, *self.also, self.version])

    def dump(self, record: R) -> bytes:
        """The record as a file. Raises a ValueError with the reason if the record would not be read back unchanged."""
        content = record.content()
        with suppress(OverflowError, ValidationError):
            data = msgspec.json.encode(content)
            if self.model.from_content(msgspec.json.decode(data)) == record:
                return data
        try:  # the standard library also writes NaN, infinities, and numbers of more than 64 bits
            data = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
            read = self.model.from_content(_parse_json(data))
        except (TypeError, ValidationError) as error:
            raise ValueError(f"{self.name}: {_explain(error, self.model, content)}") from error
        if (changed := _difference(record, read)) is not None:
            raise ValueError(f"{self.name}: {changed}")
        return data

    def parse(self, data: bytes, file: str) -> R:
        """The record in `data`. Raises a SavepointCorrupt that names `file` and the actual and expected values."""
        content = self._of_this_version(self._parse_object(data, file), file)
        try:
            return self.model.from_content(content)
        except ValidationError as error:
            why = _explain(error, self.model, content)
            raise SavepointCorrupt(f"{file}: is not a valid {self.name} of format {content['format_version']}: {why}") from error

    def load_if_whole(self, storage: Storage, path: str) -> R | None:
        """Load a record that no run depends on: returns None if it is missing, and logs and returns None if it is damaged."""
        try:
            return self.load(storage, path)
        except NotFound:
            return None
        except SavepointCorrupt as error:
            log.warning("%s; the job continues without this record, which is only for people and tools", error)
            return None

    def load(self, storage: Storage, path: str) -> R:
        """Read and parse `path`. Raises NotFound and SavepointCorrupt."""
        return self.parse(storage.read(path), f"{storage.url}/{path}")

    def _of_this_version(self, content: dict[str, Any], file: str) -> dict[str, Any]:
        found = content.get("format_version")
        if found in (self.version, *self.also) and not isinstance(found, bool):
            return content
        if not isinstance(found, int) or isinstance(found, bool):
            raise SavepointCorrupt(
                f"{file}: is not a {self.name}: format_version is {_shown(found)}, expected a number up to {self.version}"
            )
        if found > self.version:
            raise SavepointCorrupt(
                f"{file}: has {self.name} format {found}, this forkpoint reads formats up to {self.version}; "
                f"upgrade forkpoint to read it"
            )
        if found < self.oldest:
            raise SavepointCorrupt(
                f"{file}: has {self.name} format {found}, this forkpoint reads formats from {self.oldest} on; "
                f"load and save it with an older forkpoint first"
            )
        content = {name: value for name, value in content.items() if name != "format_version"}
        for step in range(found, self.version):
            try:
                content = self.upgrades[step](content)
            except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
                raise SavepointCorrupt(
                    f"{file}: cannot be upgraded from {self.name} format {step} to {step + 1}: {error!r}; the file is "
                    f"damaged: restore it from a copy"
                ) from error
        return {**content, "format_version": self.version}

    def _parse_object(self, data: bytes, file: str) -> dict[str, Any]:
        try:
            content = _parse_json(data)
        except (ValueError, RecursionError) as error:
            raise SavepointCorrupt(
                f"{file}: {len(data)} bytes that are not complete JSON ({error}); it is damaged or truncated: restore it "
                f"from a copy"
            ) from None
        if not isinstance(content, dict):
            raise SavepointCorrupt(f"{file}: is not a {self.name}: holds {_shown(content)}, expected a JSON object")
        return content


def _parse_json(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return json.loads(data)  # it also reads NaN, infinities and lone surrogates, and has better error messages


_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]|\[\.\.\.\]")


def _explain(error: Exception, model: type[Record], content: Any) -> str:
    """The error in a record's content, with its location."""
    message, _, path = str(error).partition(" - at `$")
    unknown = _UNKNOWN.fullmatch(message)
    if unknown is not None:
        message, path = "unknown field", f"{path.removesuffix('`')}.{unknown[1]}`"
    place, value = _found(path.removesuffix("`"), str(error), model, model.fields_of(content))
    return f"{place or 'the whole'} is {_shown(value)}: {message.replace('`', '')}"


def _found(path: str, message: str, model: type[Record], fields: Any) -> tuple[str, Any]:
    """The location in words and the value at the path of an error. The path has no keys of dicts (`[...]`): a key is at fault if
    the error stays when it is the only key."""
    place, value = list[str](), fields
    for step in _STEP.finditer(path):
        name, index = step[1], step[2]
        if name is None and index is None:
            name = next((key for key in list(value) if _fails_alone(key, value, message, model, fields)), "...")
        key = int(index) if index is not None else name
        place.append(str(key))
        try:
            value = value[key]
        except (LookupError, TypeError):  # a missing field, or a value of a wrong type
            break
    return ".".join(place), value


def _fails_alone(key: str, entries: dict[str, Any], message: str, model: type[Record], fields: Any) -> bool:
    others = dict(entries)
    entries.clear()
    entries[key] = others[key]
    try:
        convert(fields, model)
        return False
    except ValidationError as error:
        return str(error) == message
    finally:
        entries.clear()
        entries.update(others)


def _difference(written: Any, read: Any, place: str = "") -> str | None:
    """The first location where the read value differs from the written one; NaN equals NaN."""
    inner = (_parts(written), _parts(read)) if type(written) is type(read) else (None, None)
    if inner[0] is not None and inner[1] is not None and list(inner[0]) == list(inner[1]):
        found = (_difference(value, inner[1][name], f"{place}.{name}") for name, value in inner[0].items())
        return next((difference for difference in found if difference is not None), None)
    if type(written) is type(read) and (written == read or written != written):
        return None
    return f"{place.removeprefix('.') or 'the whole'} is {_shown(written)}, which becomes {_shown(read)} in JSON"


def _parts(value: Any) -> dict[Any, Any] | None:
    match value:
        case Struct():
            return msgspec.structs.asdict(value)
        case list():
            return dict(enumerate(value))
        case dict():
            return value
    return None


def checksum(data: bytes) -> str:
    """The checksum that manifests and savepoints store for `data`: SHA-256 in lower-case hex."""
    return hashlib.sha256(data).hexdigest()


def verify(data: bytes, expected: str, size: int, file: str) -> bytes:
    """`data` if it has the recorded size and checksum. Raises a SavepointCorrupt that names `file` and both values."""
    if len(data) != size:
        raise damaged(file, f"has {len(data)} bytes, {size} were recorded")
    if (found := checksum(data)) != expected:
        raise damaged(file, f"has SHA-256 {found}, {expected} was recorded")
    return data


def damaged(file: str, damage: str) -> SavepointCorrupt:
    return SavepointCorrupt(f"{file}: {damage}; restore it from a copy")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
