"""Opening a savepoint: parsed, and of the right structure; and checking every byte of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from forkpoint.checkpoint.format import checksum
from forkpoint.checkpoint.manifest import Parent
from forkpoint.checkpoint.paths import SAVEPOINT_FILE
from forkpoint.checkpoint.savepoint_manifest import SAVEPOINT, Savepoint, SavepointFile, SavepointState
from forkpoint.checkpoint.states import StateInfo
from forkpoint.errors import NotFound, SavepointCorrupt, SavepointNotFound
from forkpoint.savepoint.directory import check_links, is_own_file, source_files
from forkpoint.savepoint.label import LABEL_FILE, labelled
from forkpoint.savepoint.layout import layout_of, typed
from forkpoint.savepoint.parquet import read_part
from forkpoint.savepoint.rows import RowCheck, of_file
from forkpoint.savepoint.seal import SEAL_FILE, check_seal, read_seal
from forkpoint.savepoint.tasks import FileRef, Progress, RunTasks, TaskOf, encode, no_progress, run_here, task
from forkpoint.storage.base import Storage, open_storage


@dataclass(frozen=True)
class OpenedSavepoint:
    """A savepoint and where it is: ``directory`` of ``storage``, "" for its root."""

    savepoint: Savepoint
    storage: Storage
    directory: str = ""

    @property
    def url(self) -> str:
        """What ``open_savepoint`` takes."""
        return f"{self.storage.url.rstrip('/')}/{self.directory}" if self.directory else self.storage.url

    def as_parent(self) -> Parent:
        """What a run, or another savepoint, that comes from it has as its parent."""
        saved = self.savepoint
        return Parent(
            kind="savepoint", job=saved.job, epoch=saved.epoch, run=saved.run, savepoint_id=saved.id,
            savepoint_path=self.url,
        )  # fmt: skip

    def path(self, inside: str) -> str:
        """A path inside the savepoint, relative to the storage."""
        return f"{self.directory}/{inside}" if self.directory else inside

    def states(self) -> Iterator[SavepointState]:
        """All states of all operators."""
        for operator in self.savepoint.operators:
            yield from operator.states

    def file(self, file: SavepointFile) -> FileRef:
        path = self.path(file.path)
        return FileRef(f"{self.storage.url.rstrip('/')}/{path}", path, None, file.bytes, file.checksum)


@dataclass(frozen=True)
class Verified:
    """What ``verify_files`` has read: files, rows and bytes of all states."""

    files: int
    entries: int
    bytes: int


def open_savepoint(place: str | Storage, directory: str = "") -> OpenedSavepoint:
    """Read ``savepoint.json`` at a URL or path (of the directory or of the file itself), or in a storage.

    Raises SavepointNotFound; SavepointCorrupt if it is damaged, of a newer format, describes what this forkpoint cannot
    read, or names files that are not there. Files themselves are checked when they are read, and by ``verify_files``.
    """
    storage = open_storage(place.removesuffix(f"/{SAVEPOINT_FILE}")) if isinstance(place, str) else place
    directory = directory.rstrip("/")
    head = f"{directory}/" if directory else ""
    file = f"{storage.url.rstrip('/')}/{head}{SAVEPOINT_FILE}"
    if not storage.exists(f"{head}{SAVEPOINT_FILE}"):  # asked first: any directory may be named by mistake
        raise SavepointNotFound(
            f"{file.removesuffix(f'/{SAVEPOINT_FILE}')} is not a savepoint: it has no {SAVEPOINT_FILE}, which is written "
            "last; name the directory of a complete savepoint"
        )
    check_links(storage, directory)
    content = storage.read(f"{head}{SAVEPOINT_FILE}")
    sealed = read_seal(storage, f"{head}{SEAL_FILE}")
    if sealed is not None:
        check_seal(checksum(content), sealed, file)
    savepoint = SAVEPOINT.parse(content, file)  # a newer format is told as such, with or without a seal
    check_seal(checksum(content), sealed, file)
    opened = OpenedSavepoint(labelled(savepoint, storage, directory), storage, directory)
    _check_structure(opened, file)
    return opened


def _check_structure(opened: OpenedSavepoint, file: str) -> None:
    there = set(opened.storage.list(opened.directory))
    seen: dict[str, str] = {}
    for state in opened.states():
        info = state.info
        layout_of(info)
        parts = (("key", info.key_type), ("value", info.value_type), ("namespace", info.namespace_type))
        for what, description in parts:
            if description is not None:  # also where the kind of state has no use for it
                typed(description, info, what)
        try:
            encode(info)
        except OverflowError as error:
            raise SavepointCorrupt(
                f"{file}: {info.where} is described with a number beyond all bounds: {error}"
            ) from None
        for part in state.files:
            if (other := seen.setdefault(part.path, info.where)) != info.where:
                raise SavepointCorrupt(f"{file}: {part.path} is a file of {other} and of {info.where}")
            if opened.path(part.path) not in there:
                raise SavepointCorrupt(
                    f"{opened.url}: the file {part.path} of {info.where} is missing, {part.bytes} bytes were recorded; "
                    "restore it from a copy"
                )
            if part.kg_stop > opened.savepoint.max_parallelism:
                raise SavepointCorrupt(
                    f"{file}: {part.path} goes up to key group {part.kg_stop}, the max parallelism is "
                    f"{opened.savepoint.max_parallelism}"
                )


@dataclass(frozen=True)
class _VerifyFile:
    storage_url: str
    info: StateInfo
    file: FileRef
    entries: int
    kg_start: int
    kg_stop: int
    max_parallelism: int
    parallelism: int


@task(_VerifyFile)
def _verify_file(argument: _VerifyFile) -> str | None:
    try:
        data = argument.file.read(open_storage(argument.storage_url))
        layout = layout_of(argument.info)
        groups = (argument.kg_start, argument.kg_stop)
        keyed = not argument.info.is_operator_state
        check, rows = RowCheck(layout, argument.max_parallelism, argument.parallelism), 0
        with of_file(argument.file.name):
            for table in read_part(data, argument.file.name, layout, argument.entries, groups if keyed else None):
                check.check(table)
                rows += table.num_rows
    except (SavepointCorrupt, NotFound) as error:
        return str(error)
    if rows != argument.entries:
        return (
            f"{argument.file.name}: has {rows} rows in the key groups {groups[0]} to {groups[1]}, {argument.entries} were "
            "recorded"
        )
    return None


_verify_files = TaskOf[_VerifyFile, str | None](_verify_file, str | None)  # type: ignore[arg-type]


def verify_files(
    opened: OpenedSavepoint, *, run_tasks: RunTasks = run_here, progress: Progress = no_progress
) -> Verified:
    """Read every file and compare it with what was recorded.

    Raises SavepointCorrupt that names every file that is damaged, missing, or not the savepoint's although it lies
    among its parts, where it would be read by tools that read whole directories.
    """
    arguments = [
        _VerifyFile(
            opened.storage.url, state.info, opened.file(part), part.entries, part.kg_start, part.kg_stop,
            opened.savepoint.max_parallelism, opened.savepoint.parallelism,
        )
        for state in opened.states()
        for part in state.files
    ]  # fmt: skip
    found = _verify_files(run_tasks, arguments, progress)
    problems = [problem for problem in found if problem is not None]
    problems += _check_sources(opened)
    problems += _unlisted_files(opened)
    if problems:
        raise SavepointCorrupt(
            f"{opened.url}: {len(problems)} of its files are not as they should be:\n" + "\n".join(problems)
        )
    return Verified(len(arguments), sum(a.entries for a in arguments), sum(a.file.size for a in arguments))


def _check_sources(opened: OpenedSavepoint) -> Iterator[str]:
    """The files of sources say again what savepoint.json says."""
    for uid, position in opened.savepoint.sources.items():
        for path, expected in source_files(uid, position).items():
            try:
                data = opened.storage.read(opened.path(path))
            except NotFound as error:
                yield str(error)
                continue
            if data != expected:
                yield (
                    f"{opened.url}/{path}: has SHA-256 {checksum(data)}, expected {checksum(expected)} from what "
                    f"{SAVEPOINT_FILE} says of source {uid!r}"
                )


def _unlisted_files(opened: OpenedSavepoint) -> Iterator[str]:
    known = {part.path for state in opened.states() for part in state.files}
    known |= {path for uid, position in opened.savepoint.sources.items() for path in source_files(uid, position)}
    for path in opened.storage.list(opened.directory):
        inside = path.removeprefix(f"{opened.directory}/") if opened.directory else path
        if is_own_file(inside) and inside not in (SEAL_FILE, LABEL_FILE) and inside not in known:
            yield f"{opened.url}/{inside}: is not a file of this savepoint, but would be read as one; remove it"
