"""A sink's files on HDFS, Google Cloud Storage and Azure: staged in a hidden directory, then moved to their final names.

HDFS renames a file; an object store copies it on the server, unless the name exists, and then deletes the staged object. A staged
file is ``.staged-<owner>/<hash of the subdirectory><hidden name with the generation>`` below the sink's directory, so that one
listing finds all files that were never published.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import BinaryIO, Literal, cast

from forkpoint.connectors.files.places import FileName, SinkFiles, StagedFile, exists_already, unseen
from forkpoint.connectors.files.remote import AT_ONCE, join, reaching
from forkpoint.contract.source import JSON
from forkpoint.errors import AlreadyExists, NotFound, StorageError
from forkpoint.storage.files import FileStorage, FileWriter, open_files, split_url

_STAGED = re.compile(r"\.staged-[0-9a-f]{8}/.*\.g(\d+)\.[0-9a-f]{8}\.inprogress")
_BUFFER_BYTES = 1 << 20


class MovedFiles(SinkFiles):
    """A directory on HDFS, GCS or Azure."""

    at_once = AT_ONCE

    def __init__(self, url: str) -> None:
        self._url = url
        root, self._prefix = split_url(url)
        self._root = root.rstrip("/")
        self._storage = open_files(root)

    def stage(self, bucket: str, name: FileName) -> StagedFile:
        digest = blake2b(bucket.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
        staged = join(self._prefix, f".staged-{name.owner}/{digest}{name.staged}")
        final = join(self._prefix, f"{bucket}/{name.final}".lstrip("/"))
        if self._storage.exists(final):
            raise exists_already(f"{self._root}/{final}")
        return _Staged(self._storage, self._root, staged, final)

    @contextmanager
    def errors(self) -> Iterator[None]:
        with reaching(self._url):
            yield

    def check(self, committable: JSON) -> None:
        if not self.is_staged(committable):
            raise unseen(f"{self._root}/{committable['staged']}", self._url)

    def is_staged(self, committable: JSON) -> bool:
        with reaching(self._url):
            return self._storage.exists(committable["staged"])

    def is_visible(self, committable: JSON) -> bool:
        with reaching(self._url):
            return self._storage.exists(committable["final"])

    def name(self, committable: JSON) -> str:
        return f"{self._root}/{committable['final']}"

    def publish(self, committable: JSON, epoch: int) -> Literal["published", "done", "missing"]:
        staged, final = committable["staged"], committable["final"]
        with reaching(self._url):
            try:
                self._storage.move(staged, final)
            except NotFound:  # also if another driver has just published it
                return "done" if self._storage.exists(final) else "missing"
            except AlreadyExists as error:
                if not self._storage.exists(staged):  # another driver was faster
                    return "done"
                raise StorageError(
                    f"{self.name(committable)} already exists, so a file of epoch {epoch} cannot get this name. Another job or "
                    "another history of this job writes here: move its files away and start again, and give each job its own "
                    "directory or prefix="
                ) from error
        return "published"

    def cleanup(self, owner: str, generation: int) -> None:
        directory = join(self._prefix, f".staged-{owner}")
        with reaching(self._url):
            for found in list(self._storage.files(directory)):
                match = _STAGED.fullmatch(found.path[len(self._prefix) :].lstrip("/"))
                if match and int(match[1]) <= generation:
                    self._storage.remove(found.path)


class _Staged(StagedFile):
    def __init__(self, storage: FileStorage, root: str, staged: str, final: str) -> None:
        self._storage = storage
        self._paths = {"staged": staged, "final": final}
        self.final = f"{root}/{final}"
        self._raw = _Raw(storage.writer(staged))
        self.stream = cast(BinaryIO, io.BufferedWriter(self._raw, _BUFFER_BYTES))

    def finish(self) -> JSON:
        self.stream.close()
        return self._paths

    def discard(self) -> None:
        self._raw.discarded = True
        self.stream.close()
        self._storage.remove(self._paths["staged"])


class _Raw(io.RawIOBase):
    """A stream into a new file. A ``discarded`` file is not closed, so that it may not appear."""

    def __init__(self, file: FileWriter) -> None:
        self._file = file
        self.discarded = False

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        content = bytes(cast("bytes", data))
        if not self.discarded:
            self._file.write(content)
        return len(content)

    def close(self) -> None:
        if not self.closed and not self.discarded:
            self._file.close()
        super().close()
