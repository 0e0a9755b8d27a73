"""`Storage` on HDFS, with a client that needs no Java."""

from __future__ import annotations

import builtins
import socket
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urlsplit

from forkpoint.errors import AccessDenied, AlreadyExists, ConfigError, NotFound, StorageError, StorageUnavailable
from forkpoint.extras import require
from forkpoint.storage.base import TEMPORARY_PREFIX, check_path, may_follow
from forkpoint.storage.files import ConvertingWriter, FileChanged, FileWriter, StoredFile, everywhere

if TYPE_CHECKING:
    from hdfs_native import Client, FileStatus

# Half a minute without a name node is an error: a job then waits for it, and a command ends. The client's default is three.
_DEFAULTS = {"dfs.client.failover.max.attempts": "6"}
_OWN_FILE = 0o600  # state is private
_DENIED = ("AccessControlException", "SaslException", "InvalidToken", "Kerberos", "GSSAPI")
_NO_DIRECTORY = ("is not a directory", "ParentNotDirectoryException", "FileAlreadyExistsException")


class HdfsStorage:
    """`Storage` below a directory of HDFS: ``hdfs://NAMENODE:PORT/path``, ``hdfs://NAMESERVICE/path``, or ``hdfs:///path`` on the
    cluster's default file system. Settings are those of Hadoop, from ``HADOOP_CONF_DIR`` or `config`.

    A write goes to a temporary file in the target's directory, which the name node then renames atomically, without replacing
    anything (`create`) or replacing the old file (`put`). A writer killed in between leaves its temporary file, which no
    method lists.
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
        with self._errors("read", path) as location, self._client.read(location) as file:
            data: bytes = file.read()
            return data

    def list(self, prefix: str = "", after: str = "") -> builtins.list[str]:
        with self._errors("list", prefix or None) as location:
            return sorted(file.path for file in self._files(location, after) if not _is_temporary(file.path))

    def put(self, path: str, data: bytes) -> None:
        with self._errors("write", path) as location, self._written(location, data) as temporary:
            self._client.rename(temporary, location, overwrite=True)

    def create(self, path: str, data: bytes) -> None:
        with self._errors("write", path) as location, self._written(location, data) as temporary:
            try:
                self._client.rename(temporary, location, overwrite=False)
            except FileNotFoundError:
                # The client retries a call whose response was lost: its first call moved the file.
                if self._status(location) is None:
                    raise
                raise FileExistsError(location) from None

    def delete(self, path: str) -> None:
        with self._errors("delete", path) as location:
            if self._is_file(location):
                self._client.delete(location)
                self._prune(location)

    def delete_all(self, paths: builtins.list[str]) -> None:
        for path in paths:
            self.delete(path)

    def delete_prefix(self, prefix: str) -> None:
        with self._errors("delete", prefix) as location:
            status = self._status(location)
            if status is not None and status.isdir:
                self._client.delete(location, recursive=True)
                self._prune(location)

    def exists(self, path: str) -> bool:
        with self._errors("stat", path) as location:
            return self._is_file(location)

    def size(self, path: str) -> int:
        return self.stat(path).size

    def modified_ms(self, path: str) -> int:
        return self.stat(path).modified_ns // 1_000_000

    def files(self, prefix: str, after: str = "", enter: Callable[[str], bool] = everywhere) -> Iterator[StoredFile]:
        """See ``FileStorage``."""
        with self._errors("list", prefix or None) as location:
            yield from self._files(location, after, enter)

    def stat(self, path: str) -> StoredFile:
        with self._errors("stat", path) as location:
            status = self._status(location)
            if status is None or status.isdir:
                raise FileNotFoundError(location)
            return self._stored(status)

    def is_directory(self, path: str) -> bool | None:
        with self._errors("stat", path or None) as location:
            status = self._status(location)
            return status is not None and status.isdir

    def read_range(self, file: StoredFile, start: int, end: int) -> bytes:
        with self._errors("read", file.path) as location:
            if self.stat(file.path).tag != file.tag:
                raise FileChanged(f"{self._url}/{file.path} has changed since it was found")
            with self._client.read(location) as opened:
                return opened.read_range(start, end - start) if start < end else b""

    def writer(self, path: str) -> FileWriter:
        from hdfs_native import WriteOptions

        with self._errors("write", path) as location:
            file = self._client.create(location, WriteOptions(overwrite=True, create_parent=True))
        return ConvertingWriter(file, partial(self._errors, "write", path))

    def move(self, source: str, target: str) -> None:
        with self._errors("read", source) as location, self._errors("write", target) as to:
            self._client.mkdirs(to.rpartition("/")[0] or "/", create_parent=True)
            try:
                self._client.rename(location, to, overwrite=False)
            except FileNotFoundError:
                # The client retries a call whose response was lost: its first call moved the file.
                if self._status(location) is not None or self._status(to) is None:
                    raise NotFound(f"there is no file {self._url}/{source}") from None

    def remove(self, path: str) -> None:
        with self._errors("delete", path) as location:
            if self._is_file(location):
                self._client.delete(location)

    def _relative(self, status: FileStatus) -> str:
        return status.path[len(self._root) + 1 :]

    def _stored(self, status: FileStatus) -> StoredFile:
        modified_ms = status.modification_time
        return StoredFile(self._relative(status), status.length, modified_ms * 1_000_000, f"{modified_ms}-{status.length}")

    @cached_property
    def _client(self) -> Client:
        require("hdfs_native", f"the storage {self._url}")
        from hdfs_native import Client

        try:
            client = Client(self._cluster, {**_DEFAULTS, **self._config})
        except Exception as error:  # the client has no exception types of its own
            raise ConfigError(
                f"storage URL {self._url!r} cannot be used: {_reason(error)}. Check its name node and HADOOP_CONF_DIR"
            ) from error
        return client

    def _status(self, location: str) -> FileStatus | None:
        """The status of a file or directory; None if it is absent."""
        try:
            return self._client.get_file_info(location)
        except FileNotFoundError:
            return None
        except RuntimeError as error:
            if _is_below_file(error):
                return None
            raise

    def _is_file(self, location: str) -> bool:
        status = self._status(location)
        return status is not None and not status.isdir

    def _files(self, location: str, after: str, enter: Callable[[str], bool] = everywhere) -> Iterator[StoredFile]:
        """The files below a directory whose paths sort after ``after``. Skips directories without any."""
        # One directory at a time: the client's own recursion stops at a directory that is removed concurrently.
        pending = [location]
        while pending:
            for entry in self._entries(pending.pop()):
                path = self._relative(entry)
                if not entry.isdir:
                    if path > after:
                        yield self._stored(entry)
                elif may_follow(path, after) and enter(path):
                    pending.append(entry.path)

    def _entries(self, directory: str) -> builtins.list[FileStatus]:
        """The entries of a directory; none if it is absent or a file."""
        try:
            return [entry for entry in self._client.list_status(directory) if entry.path != directory]
        except (FileNotFoundError, RuntimeError) as error:
            if isinstance(error, FileNotFoundError) or _is_below_file(error):
                return []
            raise

    @contextmanager
    def _written(self, location: str, data: bytes) -> Iterator[str]:
        """Yield a temporary file in the directory of `location`; the body renames it."""
        from hdfs_native import WriteOptions

        temporary = f"{location.rpartition('/')[0]}/{TEMPORARY_PREFIX}{uuid.uuid4().hex}"
        try:
            with self._client.create(temporary, WriteOptions(permission=_OWN_FILE, create_parent=True)) as file:
                file.write(data)
            yield temporary
        except BaseException:
            with suppress(Exception):  # the first error counts
                self._client.delete(temporary)
            raise

    def _prune(self, location: str) -> None:
        """Remove directories that became empty, up to the root: each epoch creates some."""
        directory = location.rpartition("/")[0]
        while len(directory) > len(self._root):
            try:
                self._client.delete(directory)
            except (RuntimeError, OSError):  # not empty
                return
            directory = directory.rpartition("/")[0]

    @contextmanager
    def _errors(self, verb: str, path: str | None) -> Iterator[str]:
        """Yield the path in HDFS; convert the client's errors to StorageErrors."""
        location = self._root if path is None else f"{self._root}/{check_path(path)}"
        full = self._url if path is None else f"{self._url}/{path}"
        if path is not None and ":" in path:
            raise StorageError(f"storage path {path!r} has a colon, which HDFS does not allow in names")
        try:
            yield location or "/"
        except FileExistsError as error:
            raise AlreadyExists(f"{full} exists already; it is written once and never replaced") from error
        except BaseException as error:
            if not isinstance(error, OSError | RuntimeError) and type(error).__name__ != "PanicException":
                raise
            reason = _reason(error)
            if verb in ("read", "stat") and (isinstance(error, FileNotFoundError) or _is_below_file(error)):
                raise NotFound(f"there is no file {full}") from error
            if _is_below_file(error):
                raise StorageError(f"cannot {verb} {full}: a path is a file or a directory, never both") from error
            if any(name in str(error) for name in _DENIED):
                raise AccessDenied(
                    f"cannot {verb} {full}: {reason}. Give this user access to {self._url}, or log in (kinit)"
                ) from error
            raise StorageUnavailable(
                f"cannot {verb} {full} from host {socket.gethostname()}: {reason}. Check the name node, its safe mode and "
                "quotas, and HADOOP_CONF_DIR"
            ) from error


def _is_temporary(path: str) -> bool:
    return path.rpartition("/")[2].startswith(TEMPORARY_PREFIX)


def _is_below_file(error: BaseException) -> bool:
    """Whether a parent of the path is a file."""
    return any(name in str(error) for name in _NO_DIRECTORY)


def _reason(error: BaseException) -> str:
    """The first line; the rest is the name node's stack trace."""
    return str(error).replace("\\n", "\n").split("\n", 1)[0].rstrip(".")
