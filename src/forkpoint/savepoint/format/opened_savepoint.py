"""Opens savepoints, which checks their structure, and verifies every byte of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from forkpoint.checkpoint.format import checksum, damaged
from forkpoint.checkpoint.manifest import Parent
from forkpoint.checkpoint.paths import SAVEPOINT_FILE, within
from forkpoint.checkpoint.savepoint_manifest import SAVEPOINT, ChangesFile, Savepoint, SavepointFile, SavepointState, no_savepoint
from forkpoint.checkpoint.states import StateInfo
from forkpoint.errors import NotFound, SavepointCorrupt
from forkpoint.savepoint.catalog.labels import LABEL_FILE, labelled
from forkpoint.savepoint.format.checks import checked_tables
from forkpoint.savepoint.format.directory import SEAL_FILE, check_links, is_own_file, read_seal, source_files
from forkpoint.savepoint.format.layers import SavedFile
from forkpoint.savepoint.format.layout import layout_of, typed
from forkpoint.savepoint.format.parquet import PartFile, errors_naming
from forkpoint.savepoint.format.references import parent_of, storage_around
from forkpoint.savepoint.format.tasks import FileRef, Progress, RunTasks, TaskOf, TaskRunner, encode, no_progress, run_here, task
from forkpoint.storage.base import Storage, open_storage


@dataclass(frozen=True)
class OpenedSavepoint:
    """A savepoint and its location: ``directory`` of ``storage``, "" for its root."""

    savepoint: Savepoint
    storage: Storage
    directory: str = ""

    @property
    def url(self) -> str:
        """The savepoint's URL, for ``open_savepoint``."""
        return within(self.storage.url, self.directory) if self.directory else self.storage.url

    def as_parent(self) -> Parent:
        """The parent record of a run or savepoint that starts from this savepoint."""
        saved = self.savepoint
        return Parent(
            kind="savepoint", job=saved.job, epoch=saved.epoch, run=saved.run, savepoint_id=saved.id, savepoint_path=self.url
        )

    def path(self, inside: str) -> str:
        """A path inside the savepoint, relative to the storage."""
        return within(self.directory, inside)

    def states(self) -> Iterator[SavepointState]:
        for operator in self.savepoint.operators:
            yield from operator.states

    def file(self, file: SavepointFile) -> SavedFile:
        """A file of the savepoint, with its changes, for tasks to read."""
        part, *changes = map(self._part, file.layers)
        return SavedFile(file.kg_start, file.kg_stop, part, file.total, tuple(changes))

    def _part(self, file: SavepointFile | ChangesFile) -> PartFile:
        path = self.location(file)
        return PartFile(FileRef(within(self.storage.url, path), path, None, file.bytes, file.checksum), file.entries)

    def location(self, file: SavepointFile | ChangesFile) -> str:
        """The path of a file, relative to the storage."""
        return self.path(file.path) if file.savepoint is None else within(self.beside(file.savepoint), file.path)

    def beside(self, name: str) -> str:
        """A directory next to the savepoint's, relative to the storage."""
        return within(parent_of(self.directory), name)


@dataclass(frozen=True)
class Verified:
    """The numbers of files, rows and bytes that ``verify_files`` read."""

    files: int
    entries: int
    bytes: int


def open_savepoint(place: str | Storage, directory: str = "") -> OpenedSavepoint:
    """Read ``savepoint.json`` at a URL or path (of the directory or of the file itself), or in a storage.

    Raises SavepointNotFound; SavepointCorrupt if it is damaged, has a newer format, describes types that this forkpoint
    cannot read, or lists missing files. Reading a file, and ``verify_files``, checks its content.
    """
    storage = open_storage(place.removesuffix(f"/{SAVEPOINT_FILE}")) if isinstance(place, str) else place
    directory = directory.rstrip("/")
    path = within(directory, SAVEPOINT_FILE)
    file = within(storage.url, path)
    if not storage.exists(path):  # checked first: the user may name any directory by mistake
        raise no_savepoint(storage, directory)
    check_links(storage, directory)
    content = storage.read(path)
    found, sealed = checksum(content), read_seal(storage, directory)
    if sealed not in (None, found):
        raise SavepointCorrupt(f"{file}: has SHA-256 {found}, {sealed} was recorded in {SEAL_FILE}; restore a copy")
    savepoint = SAVEPOINT.parse(content, file)  # a newer format is reported as such, with or without a seal
    if sealed is None:
        raise SavepointCorrupt(f"{file}: {SEAL_FILE}, which holds its checksum, is missing next to it; restore a copy")
    savepoint = labelled(savepoint, storage, directory)
    opened = OpenedSavepoint(savepoint, storage, directory)
    if savepoint.referred and not directory:
        opened = OpenedSavepoint(savepoint, *storage_around(storage))
    _check_structure(opened, file)
    return opened


def _check_structure(opened: OpenedSavepoint, file: str) -> None:
    present = set(opened.storage.list(opened.directory))
    for name in opened.savepoint.referred:
        check_links(opened.storage, opened.beside(name))
        present.update(opened.storage.list(opened.beside(name)))
    seen: dict[str, str] = {}
    for state in opened.states():
        info = state.info
        _check_types(info, file)
        for layer in (layer for part in state.files for layer in part.layers):
            path = opened.location(layer)
            if (other := seen.setdefault(path, info.where)) != info.where:
                raise SavepointCorrupt(f"{file}: {layer.path} is a file of {other} and of {info.where}")
            if path not in present:
                raise _missing(opened, layer, info)
        for part in state.files:
            if part.kg_stop > opened.savepoint.max_parallelism:
                raise SavepointCorrupt(
                    f"{file}: {part.path} goes up to key group {part.kg_stop}, the max parallelism is "
                    f"{opened.savepoint.max_parallelism}"
                )


def _missing(opened: OpenedSavepoint, file: SavepointFile | ChangesFile, info: StateInfo) -> SavepointCorrupt:
    what = f"the file {file.path} of {info.where} is missing, {file.bytes} bytes were recorded"
    if file.savepoint is None:
        return damaged(opened.url, what)
    path = within(opened.storage.url, opened.location(file))
    return SavepointCorrupt(
        f"{opened.url}: refers to {path} of {info.where}, which is missing. The savepoint is not self-contained: copy the "
        f"directory {file.savepoint}, too, to the same place beside it, or make the copy with `forkpoint edit SAVEPOINT --to "
        "DIRECTORY`, which writes a self-contained one"
    )


def _check_types(info: StateInfo, file: str) -> None:
    layout_of(info)
    parts = (("key", info.key_type), ("value", info.value_type), ("namespace", info.namespace_type))
    for what, description in parts:
        if description is not None:  # even if this kind of state has no such part
            typed(description, info, what)
    try:
        encode(info)
    except OverflowError as error:
        raise SavepointCorrupt(f"{file}: the description of {info.where} has a number out of range: {error}") from None


@dataclass(frozen=True)
class _VerifyFile:
    storage_url: str
    info: StateInfo
    file: SavedFile
    max_parallelism: int
    parallelism: int


@task(_VerifyFile)
def _verify_file(plan: _VerifyFile) -> str | None:
    file, groups = plan.file, None if plan.info.is_operator_state else (plan.file.kg_start, plan.file.kg_stop)
    try:
        with errors_naming(file.name):
            tables = checked_tables(
                open_storage(plan.storage_url), file, layout_of(plan.info), plan.max_parallelism, plan.parallelism, groups=groups
            )
            file.check_found(sum(table.num_rows for table in tables))
    except (SavepointCorrupt, NotFound) as error:
        return str(error)
    return None


_verify_files = TaskOf[_VerifyFile, str | None](_verify_file, str | None)  # type: ignore[arg-type]


def verify_files(opened: OpenedSavepoint, *, run_tasks: RunTasks = run_here, progress: Progress = no_progress) -> Verified:
    """Read every file and compare it with its record.

    Raises SavepointCorrupt that names every damaged or missing file, and every unlisted file in the savepoint's
    directories, which tools that read whole directories would include.
    """
    saved = opened.savepoint
    arguments = [
        _VerifyFile(opened.storage.url, state.info, opened.file(part), saved.max_parallelism, saved.parallelism)
        for state in opened.states()
        for part in state.files
    ]
    found = TaskRunner(run_tasks, progress, len(arguments))(_verify_files, arguments)
    problems = [*filter(None, found), *_changed_source_files(opened), *_unlisted_files(opened)]
    if problems:
        raise SavepointCorrupt(f"{opened.url}: {len(problems)} of its files are not valid:\n" + "\n".join(problems))
    files = [argument.file for argument in arguments]
    parts = sum(1 + len(file.changes) for file in files)
    return Verified(parts, sum(file.entries for file in files), sum(file.size for file in files))


def _changed_source_files(opened: OpenedSavepoint) -> Iterator[str]:
    """Problems of source files that differ from savepoint.json."""
    for uid, position in opened.savepoint.sources.items():
        for path, expected in source_files(uid, position).items():
            try:
                data = opened.storage.read(opened.path(path))
            except NotFound as error:
                yield str(error)
                continue
            if data != expected:
                yield (
                    f"{opened.url}/{path}: has SHA-256 {checksum(data)}, expected {checksum(expected)} from the position of "
                    f"source {uid!r} in {SAVEPOINT_FILE}"
                )


def _unlisted_files(opened: OpenedSavepoint) -> Iterator[str]:
    known = {layer.path for file in opened.savepoint.files for layer in file.layers if layer.savepoint is None}
    known |= {SEAL_FILE, LABEL_FILE}
    known |= {path for uid, position in opened.savepoint.sources.items() for path in source_files(uid, position)}
    for path in opened.storage.list(opened.directory):
        inside = path.removeprefix(f"{opened.directory}/")
        if is_own_file(inside) and inside not in known:
            yield f"{opened.url}/{inside}: does not belong to this savepoint, but tools would read it; remove it"
