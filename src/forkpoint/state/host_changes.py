"""The changes of a subtask's latest epochs, in files that all processes of a host share.

A `WriteBackStore` holds committed changes in memory, where other processes do not see them. So each attempt also writes its
changes to these files. The first task of the next epoch, which knows the commit, records the accepted attempts. A process
that takes over the subtask reads the changes that the store on disk lacks.

    <epoch>-<stage>-<attempt>.arrow    a changelog
    <epoch>.accepted                   JSON: the accepted attempts by stage

The files are a cache: readers fall back to the state root for missing or damaged files, and a full disk is not an error.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from forkpoint.decoders import json_decoder
from forkpoint.errors import SavepointCorrupt
from forkpoint.state.files import read_changes
from forkpoint.state.store import Changes
from forkpoint.storage.private import make_own_directory, open_new

_decode_accepted = json_decoder(dict[int, str])


class HostChanges:
    """The files of one subtask. The directory belongs to one start of a run, in which an epoch is committed once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        with suppress(OSError):
            make_own_directory(str(directory))

    def write(self, epoch: int, stage: int, attempt: str, changelog: bytes) -> None:
        """Write an attempt's changes; they count once the attempt is accepted."""
        self._write(self._changelog(epoch, stage, attempt), changelog)

    def accept(self, epoch: int, attempts: Mapping[int, str]) -> None:
        """Record the accepted attempts, by stage, of a committed epoch."""
        path = self._directory / f"{epoch}.accepted"
        if path.exists():
            return
        temporary = self._directory / f"{epoch}.{uuid.uuid4().hex}"
        self._write(temporary, msgspec.json.encode(attempts))
        with suppress(OSError):
            temporary.rename(path)

    def read(self, epoch: int) -> list[Changes] | None:
        """The changes of a committed epoch by stage; None unless the files of all stages are readable."""
        try:
            attempts = _decode_accepted((self._directory / f"{epoch}.accepted").read_bytes())
            paths = [self._changelog(epoch, stage, attempt) for stage, attempt in sorted(attempts.items())]
            return [read_changes(path.read_bytes(), str(path)) for path in paths]
        except (OSError, msgspec.DecodeError, SavepointCorrupt):
            return None

    def remove(self, until: int) -> None:
        """Remove the files of the epochs up to ``until``, which the store on disk contains."""
        with suppress(OSError, ValueError):
            for name in os.listdir(self._directory):
                epoch = name.partition(".")[0].partition("-")[0]
                if int(epoch) <= until:
                    with suppress(OSError):
                        os.unlink(self._directory / name)

    def _changelog(self, epoch: int, stage: int, attempt: str) -> Path:
        return self._directory / f"{epoch}-{stage}-{attempt}.arrow"

    def _write(self, path: Path, data: bytes) -> None:
        try:
            with os.fdopen(open_new(str(path), own=True), "wb") as file:
                file.write(data)
        except OSError:
            with suppress(OSError):
                path.unlink()
