"""JSON files that outlive a run: format versions, one-step upgrades, checksums, and precise errors."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from forkpoint.errors import NotFound, SavepointCorrupt
from forkpoint.storage.base import Storage

log = logging.getLogger("forkpoint")

_SHOWN = 120  # characters of an offending value in a message
_SHOWN_ERRORS = 3

Upgrade = Callable[[dict[str, Any]], dict[str, Any]]
"""Takes the parsed file of version v and returns that of version v + 1, without `format_version`."""


class Record(BaseModel):
    """Base of everything stored: frozen, no unknown fields, no conversions between JSON types.

    Lists and dicts in a record must not be changed either. NaN and infinities, which JSON lacks, are kept.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, ser_json_inf_nan="constants")


R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class Format(Generic[R]):
    """How one kind of file is written and read.

    `model` describes version `version`, the only value its field `format_version` accepts. `upgrades[v]` turns a parsed
    file of version v into one of version v + 1; a file goes through as many as it needs.
    """

    name: str
    model: type[R]
    version: int
    upgrades: Mapping[int, Upgrade] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if sorted(self.upgrades) != list(range(self.oldest, self.version)):
            raise ValueError(f"{self.name}: upgrades {sorted(self.upgrades)} do not lead to version {self.version}")

    @property
    def oldest(self) -> int:
        """The oldest version that can still be read."""
        return min(self.upgrades, default=self.version)

    def dump(self, record: R) -> bytes:
        return record.model_dump_json().encode()

    def parse(self, data: bytes, file: str) -> R:
        """The record in `data`. Raises SavepointCorrupt naming `file`, the value found and the one expected."""
        try:
            return self.model.model_validate_json(data)  # usually a single parse, in C
        except ValidationError as error:
            return self._upgrade_or_explain(data, file, error)

    def load_if_whole(self, storage: Storage, path: str) -> R | None:
        """For records that no run depends on: None if it is missing, or damaged, which is logged."""
        try:
            return self.load(storage, path)
        except NotFound:
            return None
        except SavepointCorrupt as error:
            log.warning("%s; it is only a record for people and tools, so the job continues without it", error)
            return None

    def load(self, storage: Storage, path: str) -> R:
        """Read and parse `path`. Raises NotFound and SavepointCorrupt."""
        return self.parse(storage.read(path), f"{storage.url}/{path}")

    def _upgrade_or_explain(self, data: bytes, file: str, first: ValidationError) -> R:
        content = self._parse_object(data, file)
        found = content.pop("format_version", None)
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
        if found == self.version:
            raise self._invalid(first, file)
        for step in range(found, self.version):
            try:
                content = self.upgrades[step](content)
            except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
                raise SavepointCorrupt(
                    f"{file}: cannot be upgraded from {self.name} format {step} to {step + 1}: {error!r}; the file is "
                    f"damaged: restore it from a copy"
                ) from error
        content["format_version"] = self.version
        try:
            # As JSON, because strict validation accepts some types, such as tuples, only from JSON.
            return self.model.model_validate_json(json.dumps(content))
        except ValidationError as error:
            raise self._invalid(error, file) from error

    def _parse_object(self, data: bytes, file: str) -> dict[str, Any]:
        try:
            content = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise SavepointCorrupt(
                f"{file}: {len(data)} bytes that are not complete JSON ({error}); it is damaged or truncated: restore it "
                f"from a copy"
            ) from None
        if not isinstance(content, dict):
            raise SavepointCorrupt(f"{file}: is not a {self.name}: holds {_shown(content)}, expected a JSON object")
        return content

    def _invalid(self, error: ValidationError, file: str) -> SavepointCorrupt:
        problems = error.errors(include_url=False, include_context=False)
        lines = [
            f"{'.'.join(map(str, problem['loc'])) or 'the whole'} is {_shown(problem['input'])}: {problem['msg']}"
            for problem in problems[:_SHOWN_ERRORS]
        ]
        more = f"; and {len(problems) - _SHOWN_ERRORS} more" if len(problems) > _SHOWN_ERRORS else ""
        return SavepointCorrupt(f"{file}: is not a valid {self.name} of format {self.version}: {'; '.join(lines)}{more}")


def checksum(data: bytes) -> str:
    """The checksum that manifests and savepoints store for `data`: SHA-256 in lower-case hex."""
    return hashlib.sha256(data).hexdigest()


def verify(data: bytes, expected: str, size: int, file: str) -> bytes:
    """`data` if it has the recorded size and checksum. Raises SavepointCorrupt naming `file` and both values."""
    if len(data) != size:
        raise damaged(file, f"has {len(data)} bytes, {size} were recorded")
    if (found := checksum(data)) != expected:
        raise damaged(file, f"has SHA-256 {found}, {expected} was recorded")
    return data


def damaged(file: str, what: str) -> SavepointCorrupt:
    return SavepointCorrupt(f"{file}: {what}; restore it from a copy")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
