"""`Storage` on object stores: Amazon S3 and compatible stores, Google Cloud Storage, Azure Blob, and memory."""

from __future__ import annotations

import builtins
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import MemoryStore, from_url

from forkpoint.errors import AccessDenied, AlreadyExists, ConfigError, NotFound, StorageError
from forkpoint.storage.base import check_path

if TYPE_CHECKING:  # these names exist for type checkers only
    from obstore.store import ClientConfig, ObjectStore, S3Config

# Settings of the HTTP client; the parser of store settings panics on these.
_CLIENT_SETTINGS = {
    "allow_http", "allow_invalid_certificates", "connect_timeout", "default_content_type", "default_headers",
    "http1_only", "http2_keep_alive_interval", "http2_keep_alive_timeout", "http2_keep_alive_while_idle",
    "http2_only", "pool_idle_timeout", "pool_max_idle_per_host", "proxy_ca_certificate", "proxy_excludes",
    "proxy_url", "randomize_addresses", "read_timeout", "root_certificate", "timeout", "user_agent",
}  # fmt: skip

_DELETED_AT_ONCE = 1000

_memory_stores: dict[str, MemoryStore] = {}
_memory_lock = Lock()


class ObjectStorage:
    """`Storage` below a bucket's prefix. `create` is a conditional put, which the store must support (S3: `If-None-Match`,
    which AWS, MinIO, R2 and Ceph have).

    Pickles contain the URL and the given settings, not the connection; memory:// content stays in its process.
    """

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

    def list(self, prefix: str = "") -> builtins.list[str]:
        with self._errors("list", prefix or None) as store:
            return sorted(meta["path"] for chunk in obstore.list(store, prefix or None) for meta in chunk)

    def put(self, path: str, data: bytes) -> None:
        with self._errors("write", path) as store:
            obstore.put(store, path, data)

    def create(self, path: str, data: bytes) -> None:
        with self._errors("write", path) as store:
            # In one request, so that condition and write are atomic.
            obstore.put(store, path, data, mode="create", use_multipart=False)

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
        with self._errors("look at", path) as store:
            return obstore.head(store, path)["size"]

    def modified_ms(self, path: str) -> int:
        with self._errors("look at", path) as store:
            return int(obstore.head(store, path)["last_modified"].timestamp() * 1000)

    @cached_property
    def _store(self) -> ObjectStore:
        if self._url.startswith("memory://"):
            with _memory_lock:
                return _memory_stores.setdefault(self._url, MemoryStore())
        config = {key: value for key, value in self._config.items() if key.lower() not in _CLIENT_SETTINGS}
        client = {key.lower(): value for key, value in self._config.items() if key not in config}
        if _endpoint(self._config).startswith("http://"):  # only given on purpose
            client.setdefault("allow_http", "true")
        try:
            # The overloads expect the settings of one type of store, which depends on the URL.
            return from_url(self._url, config=cast("S3Config", config), client_options=cast("ClientConfig", client))
        except (BaseError, ValueError) as error:
            raise ConfigError(f"storage URL {self._url!r} or its settings cannot be used: {_reason(error)}") from error

    @contextmanager
    def _errors(self, verb: str, path: str | None) -> Iterator[ObjectStore]:
        """The store, with its errors converted to ours."""
        place = self._url.rstrip("/") if path is None else f"{self._url.rstrip('/')}/{check_path(path)}"
        try:
            yield self._store
        except (AlreadyExistsError, PreconditionError) as error:
            raise AlreadyExists(f"{place} exists already; it is written once and never replaced") from error
        except (PermissionDeniedError, UnauthenticatedError) as error:
            raise AccessDenied(
                f"cannot {verb} {place} on host {socket.gethostname()}: {_reason(error)}. Check credentials and permissions there"
            ) from error
        except NotSupportedError as error:
            raise StorageError(
                f"cannot {verb} {place}: {_reason(error)}. Use a store that supports conditional puts"
            ) from error
        except (BaseError, OSError) as error:
            if isinstance(error, FileNotFoundError) and verb in ("read", "look at"):
                raise NotFound(f"there is no file {place}") from error
            raise StorageError(
                f"cannot {verb} {place}: {_reason(error)}. Check the bucket, region, endpoint and network"
            ) from error


def _delete_all(store: ObjectStore, paths: list[str]) -> None:
    try:
        obstore.delete(store, paths)
    except FileNotFoundError:  # deleted concurrently, which ends some stores' bulk delete
        for path in paths:
            with suppress(FileNotFoundError):
                obstore.delete(store, path)


def _endpoint(config: Mapping[str, str]) -> str:
    named = (config.get(key) for key in ("endpoint", "endpoint_url", "aws_endpoint", "aws_endpoint_url"))
    from_environment = (os.environ.get(key) for key in ("AWS_ENDPOINT", "AWS_ENDPOINT_URL"))
    return next((value for value in (*named, *from_environment) if value), "")


def _reason(error: BaseException) -> str:
    """The first paragraph, in one line; the rest is a dump of the client's internals."""
    return " ".join(str(error).split("\n\n", 1)[0].split()).rstrip(".")
