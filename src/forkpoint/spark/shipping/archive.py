"""The archive of the driver's environment, packed once for each state of the environment and cached in the user's home."""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import stat
import sys
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from forkpoint.errors import ConfigError
from forkpoint.spark.shipping.environment import Member, members
from forkpoint.storage.private import make_own_directory

Report = Callable[[int, int], None]

_SUFFIX = ".tar.gz"
_locks: list[int] = []  # file descriptors


def packed_environment(report: Report) -> Path:
    """The archive of this process's environment; packs it if it has changed. ``report`` gets (done, total) in MiB.

    Keeps the archive locked for the life of this process, because executors that start later fetch it, too.
    """
    files = list(members())
    cache = _cache()
    prefix = hashlib.sha256(sys.prefix.encode()).hexdigest()[:12]
    digest = hashlib.sha256()
    for member in files:
        if "/__pycache__/" not in member.name:  # Python writes there as it runs
            digest.update(f"{member.stamp}\n".encode())
    path = cache / f"{prefix}-{digest.hexdigest()[:16]}{_SUFFIX}"
    try:
        if not path.exists():
            _pack(files, path, report)
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(handle, fcntl.LOCK_SH)
        _locks.append(handle)
        _remove_unused(cache, prefix, path)
    except OSError as error:
        raise ConfigError(
            f"--ship-env: cannot pack the environment {sys.prefix} into {cache}: {error}; free space there, or set "
            "XDG_CACHE_HOME to another directory"
        ) from error
    return path


def _cache() -> Path:
    """The user's cache directory."""
    preferred = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "forkpoint" / "environments"
    try:
        make_own_directory(str(preferred))
        return preferred
    except OSError:  # users in containers may have no home
        fallback = Path(tempfile.gettempdir()) / f"forkpoint-environments-{os.getuid()}"
        make_own_directory(str(fallback))
        return fallback


def _pack(files: Sequence[Member], path: Path, report: Report) -> None:
    sizes = [0 if member.source is None else member.source.stat().st_size for member in files]
    total, done = sum(sizes), 0
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".packing-")
    try:
        with os.fdopen(handle, "wb") as file, tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as archive:
            for member, size in zip(files, sizes, strict=True):
                _add(archive, member)
                done += size
                report(done >> 20, total >> 20)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _add(archive: tarfile.TarFile, member: Member) -> None:
    info = tarfile.TarInfo(member.name)
    if member.target is not None:
        info.type, info.linkname = tarfile.SYMTYPE, member.target
        archive.addfile(info)
    elif member.source is not None:
        with open(member.source, "rb") as file:
            status = os.fstat(file.fileno())
            # Whole seconds, which compiled files record of their source; tarfile would add a header for fractions.
            info.size, info.mode, info.mtime = status.st_size, stat.S_IMODE(status.st_mode), int(status.st_mtime)
            archive.addfile(info, file)
    else:
        text = (member.text or "").encode()
        info.size, info.mode = len(text), 0o755 if member.name.startswith("bin/") else 0o644
        archive.addfile(info, io.BytesIO(text))


def _remove_unused(cache: Path, prefix: str, kept: Path) -> None:
    """Remove archives of the environment's earlier states that no driver uses."""
    for other in cache.glob(f"{prefix}-*{_SUFFIX}"):
        if other != kept:
            with suppress(OSError):
                handle = os.open(other, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    other.unlink()
                finally:
                    os.close(handle)
