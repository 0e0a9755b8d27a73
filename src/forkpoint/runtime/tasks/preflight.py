"""What a host of the cluster must be able to do before a job's first commit, tried out on that host."""

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

from forkpoint.decoding import msgpack_decoder
from forkpoint.errors import AlreadyExists, ForkpointError, NotFound, StorageUnavailable
from forkpoint.storage.base import Storage, open_storage

PROBES = "preflight"
MIN_FREE_BYTES = 256 << 20
MAX_CLOCK_SKEW_MS = 60_000
TRIES, PAUSE_SECONDS = 3, 0.5
# A host without the driver's variables may have credentials of its own, which its clients then ask a service for. Where
# there is no such service, they would ask it for a minute at each request.
WITHOUT_VARIABLES = {"retry_timeout": "5"}

_VARIABLES = {"s3": "AWS_", "s3a": "AWS_", "gs": "GOOGLE_", "az": "AZURE_", "abfs": "AZURE_", "abfss": "AZURE_"}

# What driver and executors exchange as bytes: pickles and Arrow data.
PACKAGES = ("forkpoint", "pyarrow", "msgspec", "cloudpickle", "numpy")


class Probe(msgspec.Struct, frozen=True):
    """What to try. ``token``: the content of the files that the driver has written: `probe_file` of the state root, and
    ``directories`` by uid of the sink, with the file's name in each. ``variables``: the driver's `storage_variables`;
    ``versions``: its own; ``sent_ms``: its clock."""

    token: str
    storage_url: str
    variables: list[str]
    local_dir: str
    directories: dict[str, str]
    python: str
    versions: dict[str, str]
    sent_ms: int


class Finding(msgspec.Struct, frozen=True):
    """What a host found. ``problems``: each with its remedy."""

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
    """The distributions of the connector packages that this process has loaded. They are found by their entry points."""
    found = importlib.metadata.entry_points(group="forkpoint.connectors")
    return sorted({each.dist.name for each in found if each.module in sys.modules and each.dist is not None})


def versions(packages: Iterable[str]) -> dict[str, str]:
    """The versions of packages here, without those that are not installed."""
    found = {}
    for package in packages:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def storage_variables(url: str) -> list[str]:
    """The names of the environment variables here that clients of a URL's storage read: credentials, endpoints, regions."""
    prefix = _VARIABLES.get(urlsplit(url).scheme)
    return [] if prefix is None else sorted(name for name in os.environ if name.startswith(prefix))


def try_host(encoded: bytes) -> bytes:
    """The task: an encoded `Probe` to an encoded `Finding`."""
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
    """One answer that is cut off on the way must not end a start, so what fails is tried again."""
    missing = [name for name in probe.variables if name not in os.environ]
    storage = open_storage(probe.storage_url, WITHOUT_VARIABLES if missing else None)
    tries = 1 if missing else TRIES
    while True:
        tries -= 1
        try:
            return list(_using(storage, probe))
        except ForkpointError as error:
            if not isinstance(error, StorageUnavailable) or not tries:
                remedy = _pass_them(probe.storage_url, missing) if missing else ""
                return [f"cannot use the state root {probe.storage_url}: {error}{remedy}"]
            time.sleep(PAUSE_SECONDS)


def _using(storage: Storage, probe: Probe) -> Iterator[str]:
    yield from _reading(storage, probe)
    mine = f"{probe_file(probe.token)}-{uuid.uuid4().hex[:12]}"
    storage.create(mine, b"")
    try:
        storage.create(mine, b"")
        yield f"can create the same file of the state root {storage.url} twice; forkpoint needs a store with conditional writes"
    except AlreadyExists:
        pass
    storage.delete(mine)


def _pass_them(url: str, missing: list[str]) -> str:
    prefix = _VARIABLES[urlsplit(url).scheme]
    named = ", ".join(missing)
    return f". It has no {named}, as the driver has: pass them with --pass-env '{prefix}*', or set them there"


def _reading(storage: Storage, probe: Probe) -> Iterator[str]:
    try:
        if storage.read(probe_file(probe.token)) == probe.token.encode():
            return
    except NotFound:
        pass
    yield (
        f"does not see the driver's files in the state root {storage.url}; use an object store (s3://…), or a directory that "
        "is mounted on every host"
    )


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
    wanted = Path(os.environ.get("SPARK_LOCAL_DIRS", local_dir).split(",")[0])
    place = next(each for each in (wanted, *wanted.parents) if each.exists())
    try:
        free = shutil.disk_usage(place).free
        writable = os.access(place, os.W_OK)
    except OSError as error:
        yield f"cannot use {place} for its local state: {error}; set spark.local.dir"
        return
    if not writable:
        yield f"cannot write to {place}, for its local state; set spark.local.dir"
    elif free < MIN_FREE_BYTES:
        yield f"has {free >> 20} MiB free at {place}, for its local state; make room, or set spark.local.dir"
