"""What lies in a directory of golden files, and which formats it stands for."""

from __future__ import annotations

import importlib
import json
import pkgutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forkpoint
from forkpoint.checkpoint.format import Format
from forkpoint.state import arrow_file
from forkpoint.state_processor import SavepointReader
from forkpoint.types import Row

HERE = Path(__file__).resolve().parent
GOLDEN = sorted(HERE.glob("format-*"))
ARROW = "changelogs and snapshots"
PLACES = {
    "savepoint.json": "savepoint/savepoint.json",
    "manifest": "checkpoint/jobs/*/checkpoints/*.json",
    "job.json": "checkpoint/jobs/*/job.json",
    "run.json": "checkpoint/jobs/*/runs/*/run.json",
    "label.json": "records/label.json",
    "sink claim": "records/claim.json",
    "program.json": "records/program.json",
    "endpoint.json": "records/endpoint.json",
    "lease.json": "records/lease.json",
    "plan.json": "records/plan.json",
    "reference": "base/references/*.json",
    "last-savepoints.json": "records/last-savepoints.json",
    ARROW: "checkpoint/jobs/*/*/*/*.arrow",
}
FACTS = ("id", "job", "epoch", "parallelism", "max_parallelism", "sources", "watermarks", "input_watermarks")
_TRAILER_BYTES = struct.calcsize(">HHIQQIII4s")


def formats() -> dict[str, Format[Any]]:
    """Every format of JSON files that the code has."""
    found: dict[str, Format[Any]] = {}
    for package in ("checkpoint", "savepoint", "driver", "protocol"):
        for module in _modules(f"{forkpoint.__name__}.{package}"):
            found.update({f.name: f for f in vars(module).values() if isinstance(f, Format)})
    return found


def current_versions() -> dict[str, int]:
    """The version that is written now, of each format."""
    return {**{name: form.version for name, form in formats().items()}, ARROW: arrow_file._FORMAT}


def versions_in(golden: Path) -> dict[str, int]:
    """The versions that the files in a directory say they have."""
    return {
        name: max(_arrow_version(file) if name == ARROW else _json_version(file) for file in files)
        for name, place in PLACES.items()
        if (files := list(golden.glob(place)))
    }


def _json_version(file: Path) -> int:
    return int(json.loads(file.read_bytes())["format_version"])


def _arrow_version(file: Path) -> int:
    return int(struct.unpack(">H", file.read_bytes()[-_TRAILER_BYTES:][:2])[0])


def _modules(package: str) -> Iterator[Any]:
    yield (parent := importlib.import_module(package))
    for info in pkgutil.walk_packages(parent.__path__, f"{package}."):
        yield importlib.import_module(info.name)


def entries(reader: SavepointReader) -> dict[str, dict[str, list[str]]]:
    """All that the reader finds, as texts: of each operator, of each state, its rows in order."""
    found: dict[str, dict[str, list[str]]] = {}
    for state in reader.states:
        found.setdefault(state.uid, {})[state.name] = sorted(repr(_plain(row)) for row in state.rows())
    return found


def _plain(value: Any) -> Any:
    """The value without its class: which one the reader makes of a saved record is not part of any format."""
    if isinstance(value, Row):
        return ("Row", *map(_plain, value))
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    if isinstance(value, list):
        return list(map(_plain, value))
    if isinstance(value, set | frozenset):
        return ("set", *sorted(map(_plain, value)))
    if isinstance(value, dict):
        return {key: _plain(value[key]) for key in sorted(value)}
    return value
