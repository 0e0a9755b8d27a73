"""Checks on a host of the cluster before a job's first commit."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import socket
import sys
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from forkpoint.decoders import msgpack_decoder
from forkpoint.errors import AlreadyExists, ForkpointError, NotFound, StorageUnavailable
from forkpoint.storage.base import Storage, open_storage

PROBES = "preflight"
MIN_FREE_BYTES = 256 << 20
MAX_CLOCK_SKEW_MS = 60_000
TRIES, PAUSE_SECONDS = 3, 0.5
# A host without the driver's variables may get credentials from a service. Without such a service, clients would retry it for
# a minute at each request.
WITHOUT_VARIABLES = {"retry_timeout": "5"}

_VARIABLES = {"s3": "AWS_", "s3a": "AWS_", "gs": "GOOGLE_", "az": "AZURE_", "abfs": "AZURE_", "abfss": "AZURE_"}

# Driver and executors exchange pickles and Arrow data of these packages.
PACKAGES = ("forkpoint", "pyarrow", "msgspec", "cloudpickle", "numpy")


class Probe(msgspec.Struct, frozen=True):
    """The checks. ``token``: the content of the files that the driver has written: `probe_file` in the state root, and `marker`
    in each of ``directories`` (by uid of the sink). ``variables``: the driver's `storage_variables`; ``versions``: the driver's
    package versions; ``sent_ms``: the driver's clock."""

    token: str
    storage_url: str
    variables: list[str]
    local_dir: str
    directories: dict[str, str]
    python: str
    versions: dict[str, str]
    sent_ms: int


class Finding(msgspec.Struct, frozen=True):
    """A host's findings. ``problems``: with remedies."""

    host: str
    problems: list[str]
    now_ms: int


_decode_probe = msgpack_decoder(Probe)
decode_finding = msgpack_decoder(Finding)


def probe_file(token: str) -> str:
    """The file of the state root that the driver writes."""
    return f"{PROBES}/{token}"


def marker(token: str) -> str:
    """The name of the hidden file that the driver writes into each sink's directory."""
    return f".forkpoint-{token}"


def connectors_in_use() -> list[str]:
    """The distributions of the connector packages that this process has loaded, found by their entry points."""
    found = importlib.metadata.entry_points(group="forkpoint.connectors")
    return sorted({point.dist.name for point in found if point.module in sys.modules and point.dist is not None})


def versions(packages: Iterable[str]) -> dict[str, str]:
    """The versions of the packages that are installed on this host."""
    found = {}
    for package in packages:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def storage_variables(url: str) -> list[str]:
    """The environment variables of this process that clients of a URL's storage read: credentials, endpoints, regions."""
    prefix = _VARIABLES.get(urlsplit(url).scheme)
    return [] if prefix is None else sorted(name for name in os.environ if name.startswith(prefix))


def try_host(encoded: bytes) -> bytes:
    """The task, from an encoded `Probe` to an encoded `Finding`."""
    probe = _decode_probe(encoded)
    problems = [*_environment(probe), *_storage(probe), *_directories(probe), *_disk(probe.local_dir)]
    return msgspec.msgpack.encode(Finding(socket.gethostname(), problems, time.time_ns() // 10**6))


def _environment(probe: Probe) -> Iterator[str]:
    if platform.python_version_tuple()[:2] != tuple(probe.python.split(".")[:2]):
        yield f"runs Python {platform.python_version()}, the driver {probe.python}; set PYSPARK_PYTHON to the same version"
    here = versions(probe.versions)
    for package, version in probe.versions.items():
        if here.get(package) != version:
            found = f"has {package} {here[package]}" if package in here else f"does not have {package}"
            yield f"{found}, the driver {version}; install the same version there"


def _storage(probe: Probe) -> list[str]:
    """Retries, because one truncated answer must not fail a start."""
    missing = [name for name in probe.variables if name not in os.environ]
    storage = open_storage(probe.storage_url, WITHOUT_VARIABLES if missing else None)
    tries = 1 if missing else TRIES
    while True:
        tries -= 1
        try:
            return list(_using(storage, probe))
        except ForkpointError as error:
            if not isinstance(error, StorageUnavailable) or not tries:
                remedy = ""
                if missing:
                    prefix = _VARIABLES[urlsplit(probe.storage_url).scheme]
                    remedy = (
                        f". The host lacks {', '.join(missing)}, which the driver has: pass them with --pass-env '{prefix}*', or "
                        "set them on the host"
                    )
                return [f"cannot use the state root {probe.storage_url}: {error}{remedy}"]
            time.sleep(PAUSE_SECONDS)


def _using(storage: Storage, probe: Probe) -> Iterator[str]:
    try:
        sees_driver = storage.read(probe_file(probe.token)) == probe.token.encode()
    except NotFound:
        sees_driver = False
    if not sees_driver:
        yield (
            f"does not see the driver's files in the state root {storage.url}; use an object store (s3://…), or a directory that "
            "is mounted on every host"
        )
    own = f"{probe_file(probe.token)}-{uuid.uuid4().hex[:12]}"
    storage.create(own, b"")
    try:
        storage.create(own, b"")
        yield f"can create the same file of the state root {storage.url} twice; forkpoint needs a store with conditional writes"
    except AlreadyExists:
        pass
    storage.delete(own)


def _directories(probe: Probe) -> Iterator[str]:
    for uid, directory in probe.directories.items():
        try:
            if (Path(directory) / marker(probe.token)).read_bytes() == probe.token.encode():
                continue
        except OSError:
            pass
        yield (
            f"does not see the driver's files in {directory}, where sink {uid!r} writes; give it a directory that is mounted "
            "on every host"
        )


def _disk(local_dir: str) -> Iterator[str]:
    configured = Path(os.environ.get("SPARK_LOCAL_DIRS", local_dir).split(",")[0])
    directory = next(path for path in (configured, *configured.parents) if path.exists())
    try:
        free = shutil.disk_usage(directory).free
        writable = os.access(directory, os.W_OK)
    except OSError as error:
        yield f"cannot use {directory} for its local state: {error}; set spark.local.dir"
        return
    if not writable:
        yield f"cannot write to {directory}, for its local state; set spark.local.dir"
    elif free < MIN_FREE_BYTES:
        yield f"has {free >> 20} MiB free at {directory}, for its local state; free space, or set spark.local.dir"
