"""The changes of a subtask's latest epochs, in files that all processes of a host share.

A `WriteBackStore` holds committed changes in memory, where other processes do not see them. So each attempt also writes its
changes here, and the first task of the next epoch, which knows what was committed, notes which attempts were accepted. A
process that takes over reads from here what the store on disk does not have yet.

    <epoch>-<stage>-<attempt>.arrow    a changelog
    <epoch>.accepted                   JSON: the accepted attempts by stage

A cache: what is missing or damaged is read from the state root, and a full disk is not an error.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from forkpoint.decoding import json_decoder
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
        """Offer an attempt's changes; they count once the attempt is accepted."""
        self._write(self._changelog(epoch, stage, attempt), changelog)

    def accept(self, epoch: int, attempts: Mapping[int, str]) -> None:
        """Note which attempts (by stage) a committed epoch consists of."""
        place = self._directory / f"{epoch}.accepted"
        if place.exists():
            return
        hidden = self._directory / f"{epoch}.{uuid.uuid4().hex}"
        self._write(hidden, msgspec.json.encode(attempts))
        with suppress(OSError):
            hidden.rename(place)

    def read(self, epoch: int) -> list[Changes] | None:
        """The changes of a committed epoch, of all its stages; None unless all of them are here."""
        try:
            attempts = _decode_accepted((self._directory / f"{epoch}.accepted").read_bytes())
            places = [self._changelog(epoch, stage, attempt) for stage, attempt in sorted(attempts.items())]
            return [read_changes(place.read_bytes(), str(place)) for place in places]
        except (OSError, msgspec.DecodeError, SavepointCorrupt):
            return None

    def remove(self, until: int) -> None:
        """Remove the files of the epochs up to this one: the store on disk has them."""
        with suppress(OSError, ValueError):
            for name in os.listdir(self._directory):
                epoch = name.partition(".")[0].partition("-")[0]
                if int(epoch) <= until:
                    with suppress(OSError):
                        os.unlink(self._directory / name)

    def _changelog(self, epoch: int, stage: int, attempt: str) -> Path:
        return self._directory / f"{epoch}-{stage}-{attempt}.arrow"

    def _write(self, place: Path, data: bytes) -> None:
        try:
            with os.fdopen(open_new(str(place), own=True), "wb") as file:
                file.write(data)
        except OSError:
            with suppress(OSError):
                place.unlink()
