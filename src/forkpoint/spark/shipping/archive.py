"""The archive of the driver's environment: made once for each state of the environment, and kept in the user's cache."""

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
_in_use: list[int] = []


def packed_environment(report: Report) -> Path:
    """The archive of this process's environment; packs it if it has changed. ``report`` gets (done, total) in MiB.

    The archive stays as long as this process lives, as executors that start later fetch it, too.
    """
    found = list(members())
    home = _cache()
    prefix = hashlib.sha256(sys.prefix.encode()).hexdigest()[:12]
    place = home / f"{prefix}-{_digest(found)}{_SUFFIX}"
    try:
        if not place.exists():
            _pack(found, place, report)
        _use(place)
        _remove_unused(home, prefix, place)
    except OSError as error:
        raise ConfigError(
            f"--ship-env: cannot pack the environment {sys.prefix} into {home}: {error}; make room there, or set "
            "XDG_CACHE_HOME to another directory"
        ) from error
    return place


def _cache() -> Path:
    """A directory of the user's own."""
    wanted = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "forkpoint" / "environments"
    try:
        make_own_directory(str(wanted))
        return wanted
    except OSError:  # containers have users without a home
        other = Path(tempfile.gettempdir()) / f"forkpoint-environments-{os.getuid()}"
        make_own_directory(str(other))
        return other


def _digest(found: Sequence[Member]) -> str:
    digest = hashlib.sha256()
    for member in found:
        if "/__pycache__/" not in member.name:  # which Python adds to as it runs
            digest.update(f"{member.stamp}\n".encode())
    return digest.hexdigest()[:16]


def _pack(found: Sequence[Member], place: Path, report: Report) -> None:
    sizes = [0 if member.source is None else member.source.stat().st_size for member in found]
    total, done = sum(sizes), 0
    handle, temporary = tempfile.mkstemp(dir=place.parent, prefix=".packing-")
    try:
        with os.fdopen(handle, "wb") as file, tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as archive:
            for member, size in zip(found, sizes, strict=True):
                _add(archive, member)
                done += size
                report(done >> 20, total >> 20)
        os.replace(temporary, place)
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
            found = os.fstat(file.fileno())
            # Whole seconds, which compiled files remember of their source; tarfile would add a header for fractions.
            info.size, info.mode, info.mtime = found.st_size, stat.S_IMODE(found.st_mode), int(found.st_mtime)
            archive.addfile(info, file)
    else:
        text = (member.text or "").encode()
        info.size, info.mode = len(text), 0o755 if member.name.startswith("bin/") else 0o644
        archive.addfile(info, io.BytesIO(text))


def _use(place: Path) -> None:
    """Lock the archive for as long as this process lives."""
    handle = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    fcntl.flock(handle, fcntl.LOCK_SH)
    _in_use.append(handle)


def _remove_unused(home: Path, prefix: str, kept: Path) -> None:
    """Remove archives of the environment's earlier states that no driver uses."""
    for other in home.glob(f"{prefix}-*{_SUFFIX}"):
        if other != kept:
            with suppress(OSError):
                handle = os.open(other, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    other.unlink()
                finally:
                    os.close(handle)
