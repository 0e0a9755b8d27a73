"""`Storage` on HDFS, with a client that needs no Java."""

from __future__ import annotations

import builtins
import socket
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urlsplit

from forkpoint.errors import AccessDenied, AlreadyExists, ConfigError, NotFound, StorageError, StorageUnavailable
from forkpoint.extras import require
from forkpoint.storage.base import TEMPORARY_PREFIX, check_path, may_follow
from forkpoint.storage.files import FileChanged, StoredFile, everywhere

if TYPE_CHECKING:
    import hdfs_native
    from hdfs_native import Client, FileStatus

# Half a minute without a name node is an error, after which a job waits for it and a command ends; by default it is three.
_DEFAULTS = {"dfs.client.failover.max.attempts": "6"}
_OWN_FILE = 0o600  # state is private
_DENIED = ("AccessControlException", "SaslException", "InvalidToken", "Kerberos", "GSSAPI")
_NO_DIRECTORY = ("is not a directory", "ParentNotDirectoryException", "FileAlreadyExistsException")


class HdfsStorage:
    """`Storage` below a directory of HDFS: ``hdfs://NAMENODE:PORT/path``, ``hdfs://NAMESERVICE/path``, or ``hdfs:///path`` on the
    cluster's default file system. Settings are those of Hadoop, from ``HADOOP_CONF_DIR`` or `config`.

    Each write goes to a temporary file beside its target, which then gets its name by a rename, which the name node does in one
    step: without replacing anything (`create`), or replacing the old file (`put`). A writer killed meanwhile leaves its
    temporary file, which no method lists.
    """

    in_order: ClassVar[bool] = False

    def __init__(self, url: str, config: Mapping[str, str] | None = None) -> None:
        parts = urlsplit(url)
        if parts.query or parts.fragment or not parts.path.startswith("/"):
            raise ConfigError(f"storage URL {url!r} is not a directory of HDFS; write it like hdfs://namenode:8020/path")
        self._given = url
        self._url = url.rstrip("/")
        self._cluster = f"hdfs://{parts.netloc}" if parts.netloc else None
        self._root = parts.path.rstrip("/")
        self._config = dict(config or {})

    def __reduce__(self) -> tuple[Callable[..., HdfsStorage], tuple[str, dict[str, str]]]:
        return HdfsStorage, (self._given, self._config)

    def __repr__(self) -> str:
        return f"HdfsStorage({self._url!r})"

    @property
    def url(self) -> str:
        return self._url

    def read(self, path: str) -> bytes:
        with self._errors("read", path) as place, self._client.read(place) as file:
            data: bytes = file.read()
            return data

    def list(self, prefix: str = "", after: str = "") -> builtins.list[str]:
        with self._errors("list", prefix or None) as place:
            return sorted(path for path in self._files(place, after) if path > after and not _is_temporary(path))

    def put(self, path: str, data: bytes) -> None:
        with self._errors("write", path) as place, self._written(place, data) as temporary:
            self._client.rename(temporary, place, overwrite=True)

    def create(self, path: str, data: bytes) -> None:
        with self._errors("write", path) as place, self._written(place, data) as temporary:
            try:
                self._client.rename(temporary, place, overwrite=False)
            except FileNotFoundError:
                # The client repeats a call whose response was lost: then the first one has moved the file.
                if self._status(place) is None:
                    raise
                raise FileExistsError(place) from None

    def delete(self, path: str) -> None:
        with self._errors("delete", path) as place:
            status = self._status(place)
            if status is not None and not status.isdir:
                self._client.delete(place)
                self._prune(place)

    def delete_all(self, paths: builtins.list[str]) -> None:
        for path in paths:
            self.delete(path)

    def delete_prefix(self, prefix: str) -> None:
        with self._errors("delete", prefix) as place:
            status = self._status(place)
            if status is not None and status.isdir:
                self._client.delete(place, recursive=True)
                self._prune(place)

    def exists(self, path: str) -> bool:
        with self._errors("look at", path) as place:
            status = self._status(place)
            return status is not None and not status.isdir

    def size(self, path: str) -> int:
        return self._file(path).length

    def modified_ms(self, path: str) -> int:
        return self._file(path).modification_time

    def files(self, prefix: str, after: str = "", enter: Callable[[str], bool] = everywhere) -> Iterator[StoredFile]:
        """See ``FileStorage``."""
        with self._errors("list", prefix or None) as place:
            waiting = [place]
            while waiting:
                for each in self._entries(waiting.pop()):
                    path = self._relative(each)
                    if not each.isdir:
                        if path > after:
                            yield self._stored(each)
                    elif may_follow(path, after) and enter(path):
                        waiting.append(each.path)

    def look(self, path: str) -> StoredFile:
        return self._stored(self._file(path))

    def is_directory(self, path: str) -> bool | None:
        with self._errors("look at", path or None) as place:
            status = self._status(place)
            return status is not None and status.isdir

    def read_range(self, file: StoredFile, start: int, end: int) -> bytes:
        with self._errors("read", file.path) as place:
            if self.look(file.path).tag != file.tag:
                raise FileChanged(f"{self._url}/{file.path} has changed since it was found")
            with self._client.read(place) as opened:
                return opened.read_range(start, end - start) if start < end else b""

    def writer(self, path: str) -> _Writer:
        from hdfs_native import WriteOptions

        with self._errors("write", path) as place:
            return _Writer(self, path, self._client.create(place, WriteOptions(overwrite=True, create_parent=True)))

    def move(self, source: str, target: str) -> None:
        with self._errors("read", source) as place, self._errors("write", target) as to:
            self._client.mkdirs(to.rpartition("/")[0] or "/", create_parent=True)
            try:
                self._client.rename(place, to, overwrite=False)
            except FileNotFoundError:
                # The client repeats a call whose response was lost: then the first one has moved the file.
                if self._status(place) is not None or self._status(to) is None:
                    raise NotFound(f"there is no file {self._url}/{source}") from None

    def remove(self, path: str) -> None:
        with self._errors("delete", path) as place:
            status = self._status(place)
            if status is not None and not status.isdir:
                self._client.delete(place)

    def _relative(self, status: FileStatus) -> str:
        return status.path[len(self._root) + 1 :]

    def _stored(self, status: FileStatus) -> StoredFile:
        modified_ms = status.modification_time
        return StoredFile(self._relative(status), status.length, modified_ms * 1_000_000, f"{modified_ms}-{status.length}")

    def _file(self, path: str) -> FileStatus:
        with self._errors("look at", path) as place:
            status = self._status(place)
            if status is None or status.isdir:
                raise FileNotFoundError(place)
            return status

    @cached_property
    def _client(self) -> Client:
        require("hdfs_native", f"the storage {self._url}")
        from hdfs_native import Client

        try:
            client = Client(self._cluster, {**_DEFAULTS, **self._config})
        except Exception as error:  # the client raises no types of its own
            raise ConfigError(
                f"storage URL {self._url!r} cannot be used: {_reason(error)}. Check its name node and HADOOP_CONF_DIR"
            ) from error
        return client

    def _status(self, place: str) -> FileStatus | None:
        """None if nothing is there."""
        try:
            return self._client.get_file_info(place)
        except FileNotFoundError:
            return None
        except RuntimeError as error:  # below a file
            if any(name in str(error) for name in _NO_DIRECTORY):
                return None
            raise

    def _files(self, place: str, after: str = "") -> Iterator[str]:
        """All files below a directory, relative to the root, without directories that have none after a path."""
        # One directory at a time: the client's own recursion ends with the first directory that is removed meanwhile.
        waiting = [place]
        while waiting:
            for each in self._entries(waiting.pop()):
                path = each.path[len(self._root) + 1 :]
                if not each.isdir:
                    yield path
                elif may_follow(path, after):
                    waiting.append(each.path)

    def _entries(self, directory: str) -> builtins.list[FileStatus]:
        """What a directory contains; nothing if it is absent or a file."""
        try:
            return [each for each in self._client.list_status(directory) if each.path != directory]
        except (FileNotFoundError, RuntimeError) as error:
            if isinstance(error, FileNotFoundError) or any(name in str(error) for name in _NO_DIRECTORY):
                return []
            raise

    @contextmanager
    def _written(self, place: str, data: bytes) -> Iterator[str]:
        """A temporary file beside `place`; the body gives it its name."""
        from hdfs_native import WriteOptions

        temporary = f"{place.rpartition('/')[0]}/{TEMPORARY_PREFIX}{uuid.uuid4().hex}"
        named = False
        try:
            with self._client.create(temporary, WriteOptions(permission=_OWN_FILE, create_parent=True)) as file:
                file.write(data)
            yield temporary
            named = True
        finally:
            if not named:
                with suppress(Exception):  # the first error counts
                    self._client.delete(temporary)

    def _prune(self, place: str) -> None:
        """Remove directories that became empty, up to the root: each epoch creates some."""
        directory = place.rpartition("/")[0]
        while len(directory) > len(self._root):
            try:
                self._client.delete(directory)
            except (RuntimeError, OSError):  # not empty
                return
            directory = directory.rpartition("/")[0]

    @contextmanager
    def _errors(self, verb: str, path: str | None) -> Iterator[str]:
        """The path in HDFS, with the client's errors converted to ours."""
        place = self._root if path is None else f"{self._root}/{check_path(path)}"
        full = self._url if path is None else f"{self._url}/{path}"
        if path is not None and ":" in path:
            raise StorageError(f"storage path {path!r} has a colon, which HDFS does not allow in names")
        try:
            yield place or "/"
        except FileExistsError as error:
            raise AlreadyExists(f"{full} exists already; it is written once and never replaced") from error
        except BaseException as error:
            is_clients_own = type(error).__name__ == "PanicException"
            if not isinstance(error, OSError | RuntimeError) and not is_clients_own:
                raise
            reason = _reason(error)
            below_a_file = any(name in str(error) for name in _NO_DIRECTORY)
            if verb in ("read", "look at") and (isinstance(error, FileNotFoundError) or below_a_file):
                raise NotFound(f"there is no file {full}") from error
            if below_a_file:
                raise StorageError(f"cannot {verb} {full}: a path is a file or a directory, never both") from error
            if any(name in str(error) for name in _DENIED):
                raise AccessDenied(
                    f"cannot {verb} {full}: {reason}. Give this user access to {self._url}, or log in (kinit)"
                ) from error
            raise StorageUnavailable(
                f"cannot {verb} {full} from host {socket.gethostname()}: {reason}. Check the name node, its safe mode and "
                "quotas, and HADOOP_CONF_DIR"
            ) from error


class _Writer:
    """Writes a file."""

    def __init__(self, storage: HdfsStorage, path: str, file: hdfs_native.FileWriter) -> None:
        self._storage = storage
        self._path = path
        self._file = file

    def write(self, data: bytes) -> None:
        with self._storage._errors("write", self._path):
            self._file.write(data)

    def close(self) -> None:
        with self._storage._errors("write", self._path):
            self._file.close()


def _is_temporary(path: str) -> bool:
    return path.rpartition("/")[2].startswith(TEMPORARY_PREFIX)


def _reason(error: BaseException) -> str:
    """The first line: the rest is the name node's stack trace."""
    return str(error).replace("\\n", "\n").split("\n", 1)[0].rstrip(".")
