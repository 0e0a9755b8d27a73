"""`Storage` on object stores: Amazon S3 and compatible stores, Google Cloud Storage, Azure Blob, and memory."""

from __future__ import annotations

import builtins
import os
import re
import socket
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cached_property, partial
from threading import Lock
from typing import TYPE_CHECKING, ClassVar, cast
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    GenericError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import MemoryStore, from_url

from forkpoint.errors import AccessDenied, AlreadyExists, ConfigError, NotFound, StorageError, StorageUnavailable
from forkpoint.storage.base import check_path
from forkpoint.storage.files import ConvertingWriter, FileChanged, FileWriter, StoredFile, everywhere

if TYPE_CHECKING:  # these names exist for type checkers only
    from obstore import ObjectMeta
    from obstore.store import ClientConfig, ObjectStore, RetryConfig, S3Config

# The client retries a request for a minute; then the job pauses and reports it. The number of retries must not be the limit: the
# default of ten lasts only three seconds.
RETRY: RetryConfig = {
    "max_retries": 100_000,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=5), "base": 2},
}
# The setting, in seconds, that overrides that minute: for a first request, which more likely has a wrong URL than bad luck.
RETRY_TIMEOUT = "retry_timeout"
# A silent connection counts as lost; a slow one does not.
TIMEOUTS = {"connect_timeout": "5s", "read_timeout": "30s", "timeout": "30m"}

# Settings of the HTTP client; the parser of store settings panics on them.
_CLIENT_SETTINGS = {
    "allow_http",
    "allow_invalid_certificates",
    "connect_timeout",
    "default_content_type",
    "default_headers",
    "http1_only",
    "http2_keep_alive_interval",
    "http2_keep_alive_timeout",
    "http2_keep_alive_while_idle",
    "http2_only",
    "pool_idle_timeout",
    "pool_max_idle_per_host",
    "proxy_ca_certificate",
    "proxy_excludes",
    "proxy_url",
    "randomize_addresses",
    "read_timeout",
    "root_certificate",
    "timeout",
    "user_agent",
}

_REQUEST = "forkpoint"  # the object attribute that identifies the creating request
_REFUSED = re.compile(r"status code: 4(?!08|29)\d\d")  # the request is wrong, so a retry would fail, too
_SYSTEM_MESSAGE = re.compile(r'message: "([^"]+)"')
_DELETED_AT_ONCE = 1000

_memory_stores: dict[str, MemoryStore] = {}
_memory_lock = Lock()


class ObjectStorage:
    """`Storage` below a bucket's prefix. `create` is a conditional put, which the store must support (S3: `If-None-Match`,
    which AWS, MinIO, R2 and Ceph have).

    Pickles contain the URL and the given settings, not the connection; memory:// content stays in its process.
    """

    in_order: ClassVar[bool] = True

    def __init__(self, url: str, config: Mapping[str, str] | None = None) -> None:
        if not urlsplit(url).netloc and not url.startswith("memory://"):
            raise ConfigError(f"storage URL {url!r} names no bucket; write it like s3://bucket/path")
        self._url = url
        self._config = dict(config or {})

    def __reduce__(self) -> tuple[Callable[..., ObjectStorage], tuple[str, dict[str, str]]]:
        return ObjectStorage, (self._url, self._config)

    def __repr__(self) -> str:
        return f"ObjectStorage({self._url!r})"  # the settings may contain secrets

    @property
    def url(self) -> str:
        return self._url

    def read(self, path: str) -> bytes:
        with self._errors("read", path) as store:
            return bytes(obstore.get(store, path).bytes())

    def list(self, prefix: str = "", after: str = "") -> builtins.list[str]:
        with self._errors("list", prefix or None) as store:
            chunks = obstore.list(store, prefix or None, offset=after or None)
            return sorted(meta["path"] for chunk in chunks for meta in chunk)

    def put(self, path: str, data: bytes) -> None:
        with self._errors("write", path) as store:
            obstore.put(store, path, data)

    def create(self, path: str, data: bytes) -> None:
        request = uuid.uuid4().hex
        try:
            self._create(path, data, request)
        except StorageUnavailable:  # the request may have succeeded; the second attempt finds out
            self._create(path, data, request)

    def _create(self, path: str, data: bytes, request: str) -> None:
        """Create the file unless this request has created it already and its answer was lost."""
        try:
            with self._errors("write", path) as store:
                # One HTTP request, so that condition and write are atomic.
                obstore.put(store, path, data, mode="create", use_multipart=False, attributes={_REQUEST: request})
        except AlreadyExists as error:
            try:
                with self._errors("read", path) as store:
                    creator = obstore.get(store, path).attributes.get(_REQUEST)
            except NotFound:  # S3 also answers like this while another request for the name is in flight
                raise StorageUnavailable(f"{self._location(path)} cannot be created: another request is in flight") from error
            if creator != request:
                raise

    def delete(self, path: str) -> None:
        with self._errors("delete", path) as store, suppress(FileNotFoundError):
            obstore.delete(store, path)

    def delete_all(self, paths: builtins.list[str]) -> None:
        for start in range(0, len(paths), _DELETED_AT_ONCE):
            some = paths[start : start + _DELETED_AT_ONCE]
            with self._errors("delete", some[0]) as store:
                _delete_all(store, [check_path(path) for path in some])

    def delete_prefix(self, prefix: str) -> None:
        with self._errors("delete", prefix) as store:
            for chunk in obstore.list(store, prefix):
                _delete_all(store, [meta["path"] for meta in chunk])

    def exists(self, path: str) -> bool:
        try:
            self.size(path)
        except NotFound:
            return False
        return True

    def size(self, path: str) -> int:
        return self.stat(path).size

    def modified_ms(self, path: str) -> int:
        return self.stat(path).modified_ns // 1_000_000

    def files(self, prefix: str, after: str = "", enter: Callable[[str], bool] = everywhere) -> Iterator[StoredFile]:
        """See ``FileStorage``."""
        with self._errors("list", prefix or None) as store:
            for chunk in obstore.list(store, prefix or None, offset=after or None):
                yield from map(_stored, chunk)

    def stat(self, path: str) -> StoredFile:
        with self._errors("stat", path) as store:
            return _stored(obstore.head(store, path))

    def is_directory(self, path: str) -> bool | None:
        return None

    def read_range(self, file: StoredFile, start: int, end: int) -> bytes:
        if start >= end:
            return b""
        with self._errors("read", file.path) as store:
            try:
                found = obstore.get(store, file.path, options={"range": (start, end), "if_match": file.tag or None})
                return bytes(found.bytes())
            except PreconditionError as error:
                raise FileChanged(f"{self._location(file.path)} has changed since it was found") from error

    def writer(self, path: str) -> FileWriter:
        with self._errors("write", path) as store:
            file = obstore.open_writer(store, path, attributes={_REQUEST: uuid.uuid4().hex})
        return ConvertingWriter(file, partial(self._errors, "write", path))

    def move(self, source: str, target: str) -> None:
        """Copy on the server, then delete. The copied attribute distinguishes the copy from another object."""
        try:
            with self._errors("read", source) as store:
                try:
                    obstore.copy(store, source, target, overwrite=False)
                except (AlreadyExistsError, PreconditionError):
                    mine = obstore.get(store, source).attributes.get(_REQUEST)
                    if mine is None or obstore.get(store, target).attributes.get(_REQUEST) != mine:
                        raise
                complete = obstore.head(store, source)["size"] == obstore.head(store, target)["size"]
        except NotFound:
            if self.exists(source):  # the target has just been removed
                return self.move(source, target)
            raise
        if not complete:
            raise StorageUnavailable(f"{self._location(source)} is still being copied to {self._location(target)}")
        self.remove(source)

    def remove(self, path: str) -> None:
        self.delete(path)

    @cached_property
    def _store(self) -> ObjectStore:
        if self._url.startswith("memory://"):
            with _memory_lock:
                return _memory_stores.setdefault(self._url, MemoryStore())
        settings = dict(self._config)
        retry_timeout_s = settings.pop(RETRY_TIMEOUT, None)
        retry = RETRY if retry_timeout_s is None else {**RETRY, "retry_timeout": timedelta(seconds=float(retry_timeout_s))}
        config = {key: value for key, value in settings.items() if key.lower() not in _CLIENT_SETTINGS}
        client = {key.lower(): value for key, value in settings.items() if key not in config}
        if _endpoint(self._config).startswith("http://"):  # only ever given on purpose
            client.setdefault("allow_http", "true")
        try:
            # The overloads expect the settings of one type of store, which depends on the URL.
            return from_url(
                self._url,
                config=cast("S3Config", config),
                client_options=cast("ClientConfig", {**TIMEOUTS, **client}),
                retry_config=retry,
            )
        except (BaseError, ValueError) as error:
            raise ConfigError(f"storage URL {self._url!r} or its settings cannot be used: {_reason(error)}") from error

    @contextmanager
    def _errors(self, verb: str, path: str | None) -> Iterator[ObjectStore]:
        """Yield the store; convert its errors to StorageErrors."""
        location = self._location(path)
        try:
            yield self._store
        except (AlreadyExistsError, PreconditionError) as error:
            raise AlreadyExists(f"{location} exists already; it is written once and never replaced") from error
        except (PermissionDeniedError, UnauthenticatedError) as error:
            raise AccessDenied(
                f"cannot {verb} {location} on host {socket.gethostname()}: {_reason(error)}. Check credentials and "
                "permissions there"
            ) from error
        except NotSupportedError as error:
            raise StorageError(
                f"cannot {verb} {location}: {_reason(error)}. Use a store that supports conditional puts"
            ) from error
        except (BaseError, OSError) as error:
            if isinstance(error, FileNotFoundError) and verb in ("read", "stat"):
                raise NotFound(f"there is no file {location}") from error
            if type(error) is GenericError and not _REFUSED.search(str(error)):
                raise StorageUnavailable(
                    f"cannot {verb} {location} from host {socket.gethostname()}: the store does not answer: {_reason(error)}. "
                    "Check the store, the endpoint and the network"
                ) from error
            raise StorageError(
                f"cannot {verb} {location}: {_reason(error)}. Check the bucket, region, endpoint and network"
            ) from error

    def _location(self, path: str | None) -> str:
        return self._url.rstrip("/") if path is None else f"{self._url.rstrip('/')}/{check_path(path)}"


def _stored(meta: ObjectMeta) -> StoredFile:
    modified_ns = int(meta["last_modified"].timestamp() * 1000) * 1_000_000
    return StoredFile(meta["path"], meta["size"], modified_ns, meta["e_tag"] or "")


def _delete_all(store: ObjectStore, paths: list[str]) -> None:
    try:
        obstore.delete(store, paths)
    except FileNotFoundError:  # a concurrent deletion aborts some stores' bulk delete
        for path in paths:
            with suppress(FileNotFoundError):
                obstore.delete(store, path)


def _endpoint(config: Mapping[str, str]) -> str:
    configured = (config.get(key) for key in ("endpoint", "endpoint_url", "aws_endpoint", "aws_endpoint_url"))
    from_environment = (os.environ.get(key) for key in ("AWS_ENDPOINT", "AWS_ENDPOINT_URL"))
    return next((value for value in (*configured, *from_environment) if value), "")


def _reason(error: BaseException) -> str:
    """The first paragraph on one line, with the system's message; the rest is a dump of the client's internals."""
    summary, _, internals = str(error).partition("\n\n")
    reason = " ".join(summary.split()).rstrip(".")
    system = _SYSTEM_MESSAGE.search(internals)
    return reason if system is None else f"{reason}: {system[1]}"
