"""The end of a bounded replay, and the destination of its output."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from forkpoint.checkpoint.manifest import Manifest, SourcePosition
from forkpoint.checkpoint.paths import escape
from forkpoint.connectors.files.sink import FileSink
from forkpoint.connectors.sinks import DiscardSink
from forkpoint.contract.sink import Sink
from forkpoint.driver.start.replay import Until, UntilPositions, UntilTime
from forkpoint.errors import SavepointNotFound
from forkpoint.functions.watermarks import epoch_ms
from forkpoint.savepoint.catalog.names import named_savepoint
from forkpoint.storage.base import Storage

POSITIONS = "positions:"  # prefix of the path of a file with `ab`'s final positions


def until_from(storage: Storage, given: str) -> Until:
    """Parse ``--until``: a time, or else a savepoint (path, URL, id or label)."""
    if given.startswith(POSITIONS):
        found = json.loads(Path(given.removeprefix(POSITIONS)).read_text())
        sources = {uid: SourcePosition.from_content(p) for uid, p in found["sources"].items()}
        return UntilPositions(sources, found["name"], found["operators"])
    time_ms = _time_ms(given)
    if time_ms is not None:
        return UntilTime(time_ms, given)
    try:
        savepoint = named_savepoint(storage, given).savepoint
    except SavepointNotFound as error:
        raise SavepointNotFound(
            f"--until {given!r} is neither a time nor a savepoint. Write a time as 2026-07-31T12:00 (UTC, or with an offset), or "
            f"in ms since 1970; {error}"
        ) from None
    return UntilPositions(savepoint.sources, f"savepoint {savepoint.id}", {o.uid: o.name for o in savepoint.operators})


def write_positions(path: Path, manifest: Manifest) -> str:
    """Write the positions of an epoch to a file; returns it as a value of ``--until``."""
    sources = {uid: position.content() for uid, position in manifest.sources.items()}
    names = {operator.uid: operator.name for operator in manifest.operators}
    name = f"epoch {manifest.epoch} of {manifest.job}"
    path.write_text(json.dumps({"name": name, "sources": sources, "operators": names}))
    return f"{POSITIONS}{path}"


def _time_ms(given: str) -> int | None:
    if re.fullmatch(r"-?\d+", given, re.ASCII):
        return int(given)
    try:
        moment = datetime.fromisoformat(given)
    except ValueError:
        return None
    return epoch_ms(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC))


DISCARDED = "discarded:"
"""In place of a directory for captured output."""


def capturing(directory: str) -> Callable[[str], Sink]:
    """Returns a function that creates, for a sink's uid, a sink that writes JSON lines below the directory, or discards them."""
    return lambda uid: DiscardSink() if directory == DISCARDED else FileSink.json(Path(directory) / escape(uid))
