"""A file sink that replaces the files of a directory once all input has ended.

Until then, each epoch publishes its files into a hidden directory, where nobody reads them; so what happens at a crash, or if a
task runs twice, is as with any file sink. Then the driver decides on a swap: which files go, and which take their places. The
decision is one file, written before anything is touched, so that whoever repeats the swap does what is left of the same one. A
mark of its epoch remains, by which a repetition after the end does nothing. Marks are of one incarnation of the job, and have
epochs, which only increase, so that a driver that wakes up late finds nothing to do.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Self

from forkpoint.connectors.files.local import make_directory
from forkpoint.connectors.files.places import sink_files
from forkpoint.connectors.files.sink import FileSink
from forkpoint.contract.sink import SinkContext, SinkWriter
from forkpoint.contract.source import JSON
from forkpoint.errors import ConfigError, OutputLost
from forkpoint.storage.base import sync_directory

_EPOCH = re.compile(r".*-(\d{12})-\d+-.*")
_MARK, _BEGUN = re.compile(r"_(swap|done)-(\d+)"), "_begun"


@dataclass(frozen=True)
class ReplacingFileSink(FileSink):
    """Made of another file sink, with ``of``. With ``bucket``, only the subdirectories that get files are replaced; otherwise the
    directory with all its visible files, also if there are no others. ``always``: a subdirectory that is replaced also then.
    ``job``: the job's name, once it is known."""

    always: str = ""
    job: str | None = None

    @classmethod
    def of(cls, sink: FileSink, always: str = "") -> Self:
        """Raises ConfigError for files that are not on a local or shared file system."""
        if isinstance(sink.path, str):
            raise ConfigError("files of an object store or HDFS cannot be replaced yet, only added")
        return cls(**{each.name: getattr(sink, each.name) for each in fields(FileSink)}, always=always)

    def for_job(self, job: str) -> Self:
        return replace(super().for_job(job), job=job)

    @property
    def place(self) -> None:
        """It may replace what other jobs have written."""
        return None

    def create_writer(self, context: SinkContext) -> SinkWriter:
        return self._hidden.create_writer(context)

    def check(self, committables: list[JSON]) -> None:
        self._hidden.check(committables)

    def commit(self, committables: list[JSON], epoch: int) -> None:
        if max(self._marked("swap"), self._marked("done")) < epoch:  # a swap only begins when all files are there
            self._hidden.commit(committables, epoch)

    def cleanup(self, uid: str, job: str, generation: int) -> None:
        self._hidden.cleanup(uid, job, generation)

    def begin(self, epoch: int, incarnation: str) -> None:
        """Remove what others have left there, whose results are not part of this run's."""
        if self._begun(incarnation) < epoch:
            with sink_files(self._target).errors():
                make_directory(self._directory)
                marks = [each for each in os.listdir(self._directory) if _MARK.fullmatch(each)]
                for name in (*marks, *_visible(self._directory)):
                    (self._directory / name).unlink(missing_ok=True)
                self._write(self._directory / _BEGUN, json.dumps({"incarnation": incarnation, "epoch": epoch}))

    def finish(self, epoch: int, incarnation: str) -> None:
        if not (self._directory / _BEGUN).exists():
            raise OutputLost(f"{self._directory}, where the files of {self._target} waited for the end of the input, was removed")
        begun = self._begun(incarnation)
        if 0 <= begun < epoch and self._marked("done") < epoch:
            with sink_files(self._target).errors():
                self._swap(begun, epoch)

    def _swap(self, begun: int, epoch: int) -> None:
        make_directory(self._directory)
        decision = self._directory / f"_swap-{epoch}"
        if not decision.exists():
            self._write(decision, json.dumps(self._decided(begun, epoch)))
        target, swap = self._target, json.loads(decision.read_bytes())
        for name in swap["old"]:
            (target / name).unlink(missing_ok=True)
        for name in swap["new"]:
            make_directory((target / name).parent)
            with contextlib.suppress(FileNotFoundError):  # moved before
                os.replace(self._directory / name, target / name)
        for directory in {(target / name).parent for name in (*swap["old"], *swap["new"])}:
            sync_directory(directory)
        self._write(self._directory / f"_done-{epoch}", "")
        decision.unlink(missing_ok=True)

    def _decided(self, begun: int, epoch: int) -> dict[str, list[str]]:
        """The files that go, and those that come."""
        new = sorted(name for name in _visible(self._directory) if begun < _epoch_of(name) <= epoch)
        written = {self.always, *(os.path.dirname(name) for name in new)} - {""}
        old = [name for name in _visible(self._target) if self.bucket is None or os.path.dirname(name) in written]
        return {"old": sorted(old), "new": new}

    @property
    def _target(self) -> Path:
        assert isinstance(self.path, Path)
        return self.path

    @property
    def _directory(self) -> Path:
        """Where files wait: a directory for each job and prefix."""
        assert self.job is not None
        owner = zlib.crc32(f"{self.job}\n{self.prefix}".encode())
        return self._target / f".new-{owner:08x}"

    @property
    def _hidden(self) -> FileSink:
        options = {each.name: getattr(self, each.name) for each in fields(FileSink)}
        return FileSink(**{**options, "path": self._directory})

    def _marked(self, kind: str) -> int:
        """The last epoch with a mark of this kind; -1 without any."""
        names = os.listdir(self._directory) if self._directory.is_dir() else []
        return max((int(found[2]) for name in names if (found := _MARK.fullmatch(name)) and found[1] == kind), default=-1)

    def _begun(self, incarnation: str) -> int:
        """The epoch from which on files are there of the last run of this job that began anew; -1 if it is another job's."""
        try:
            begun = json.loads((self._directory / _BEGUN).read_bytes())
        except FileNotFoundError:
            return -1
        return int(begun["epoch"]) if begun["incarnation"] == incarnation else -1

    def _write(self, path: Path, content: str) -> None:
        """Write a file as a whole, durably."""
        unfinished = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        with unfinished.open("w") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
        sync_directory(path.parent)


def _visible(root: Path) -> Iterator[str]:
    """The visible files below a directory, by their paths from there."""
    for directory, below, names in os.walk(root):
        below[:] = [each for each in below if not each.startswith((".", "_"))]
        for name in names:
            if not name.startswith((".", "_")):
                yield os.path.relpath(os.path.join(directory, name), root)


def _epoch_of(name: str) -> int:
    """The epoch that has written a file; 0 if its name has none."""
    found = _EPOCH.fullmatch(os.path.basename(name))
    return 0 if found is None else int(found[1])
