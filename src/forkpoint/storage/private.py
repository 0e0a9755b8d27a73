"""Files and directories that only their owner can access, whatever the umask: state contains users' data, and recorded
programs are executed.

A directory set up for a group (`chmod 2770`: setgid and group-writable) is shared: files made there have its group, which
can access them too.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from forkpoint.errors import StorageError

_SHARED = stat.S_ISGID | stat.S_IWGRP


def open_new(place: str, *, append: bool = False, own: bool = False) -> int:
    """Open a file for writing: a new one, or with ``append`` possibly an existing one. Raises FileNotFoundError without its
    directory, and FileExistsError. ``own``: private to its owner even in a shared directory."""
    flags = os.O_APPEND if append else os.O_EXCL
    shared = not own and is_shared(os.path.dirname(place))
    handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | flags, 0o600)
    if shared:  # regardless of the umask
        os.fchmod(handle, 0o660)
    return handle


def make_directory(directory: str) -> None:
    """Make a directory. Raises FileNotFoundError without its parent, and FileExistsError."""
    shared = is_shared(os.path.dirname(directory))
    os.mkdir(directory, 0o700)
    if shared:
        os.chmod(directory, 0o2770)


def make_directories(directory: str) -> None:
    """Make a directory and its missing parents."""
    directory = os.path.abspath(directory)
    if not os.path.isdir(directory):
        make_directories(os.path.dirname(directory))
        with suppress(FileExistsError):
            make_directory(directory)


def make_own_directory(directory: str) -> None:
    """Make a directory below one that others can write to, such as /tmp. Raises StorageError if another user owns it, who
    could read and change its files."""
    make_directories(directory)
    place = Path(os.path.abspath(directory))
    for each in (place, *place.parents):
        open_to_all = each.parent.stat().st_mode & stat.S_IWOTH
        if open_to_all and (found := os.lstat(each)).st_uid not in (0, os.geteuid()):
            raise StorageError(
                f"{each} belongs to another user (id {found.st_uid}), who could read and change this job's files there; "
                "remove it, or set TMPDIR to a directory of your own"
            )


def close_to_others(directory: str) -> None:
    """Revoke all other users' access to a directory of ours that an older release, or another program, made."""
    with suppress(FileNotFoundError, NotADirectoryError):
        found = os.lstat(directory)
        if (
            stat.S_ISDIR(found.st_mode)
            and found.st_uid == os.geteuid()
            and stat.S_IMODE(found.st_mode) & 0o077
            and not is_shared(os.path.dirname(directory))
            and not is_shared(directory)
        ):
            os.chmod(directory, 0o700)


def is_shared(directory: str) -> bool:
    """Whether a directory is shared with a group. Raises FileNotFoundError."""
    return os.stat(directory or ".").st_mode & _SHARED == _SHARED
