"""Output that sinks stage below the state root until it is committed. Garbage collection removes it later."""

from __future__ import annotations

import base64
from typing import Any

from forkpoint.checkpoint.format import checksum, verify
from forkpoint.storage.base import open_storage

INLINE_BYTES = 4096


def stage(state_root: str, path: str, data: bytes, inline_bytes: int = INLINE_BYTES) -> Any:
    """Store output durably. Returns what ``staged`` finds it by, a JSON value. Output up to ``inline_bytes`` becomes part
    of that, and so of the manifest: a file costs two requests to storage."""
    if len(data) <= inline_bytes:
        return {"inline": base64.b64encode(data).decode("ascii")}
    return stage_file(state_root, path, data)


def stage_file(state_root: str, path: str, data: bytes) -> Any:
    """As ``stage``, however small it is."""
    open_storage(state_root).put(path, data)
    return {"path": path, "bytes": len(data), "checksum": checksum(data)}


def staged(state_root: str, stored: Any) -> bytes:
    """What ``stage`` has stored. Raises NotFound, and SavepointCorrupt if the file is damaged."""
    if "inline" in stored:
        return base64.b64decode(stored["inline"], validate=True)
    data = open_storage(state_root).read(stored["path"])
    return verify(data, stored["checksum"], stored["bytes"], f"{state_root.rstrip('/')}/{stored['path']}")
