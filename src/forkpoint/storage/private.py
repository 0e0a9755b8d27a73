"""Files and directories that only their owner can access, whatever the umask: state contains users' data, and recorded
programs are executed.

A directory set up for a group (`chmod 2770`: setgid and group-writable) is shared: the group can access new files in it, too.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from forkpoint.errors import StorageError

_SHARED = stat.S_ISGID | stat.S_IWGRP


def open_new(path: str, *, append: bool = False, own: bool = False) -> int:
    """Open a new file for writing; with ``append``, it may exist. Raises FileNotFoundError if its directory is missing, and
    FileExistsError. ``own``: private to its owner even in a shared directory."""
    flags = os.O_APPEND if append else os.O_EXCL
    shared = not own and is_shared(os.path.dirname(path))
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | flags, 0o600)
    if shared:  # regardless of the umask
        os.fchmod(handle, 0o660)
    return handle


def make_directory(directory: str) -> None:
    """Make a directory. Raises FileNotFoundError if its parent is missing, and FileExistsError."""
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
    """Make a directory below a world-writable one, such as /tmp. Raises StorageError if another user, who could read and change
    its files, owns it."""
    make_directories(directory)
    path = Path(os.path.abspath(directory))
    for ancestor in (path, *path.parents):
        open_to_all = ancestor.parent.stat().st_mode & stat.S_IWOTH
        if open_to_all and (status := os.lstat(ancestor)).st_uid not in (0, os.geteuid()):
            raise StorageError(
                f"{ancestor} belongs to another user (id {status.st_uid}), who could read and change this job's files there; "
                "remove it, or set TMPDIR to a directory of your own"
            )


def close_to_others(directory: str) -> None:
    """Revoke other users' access to a directory of this user that an older release, or another program, made."""
    with suppress(FileNotFoundError, NotADirectoryError):
        status = os.lstat(directory)
        mine = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
        if mine and status.st_mode & 0o077 and not is_shared(os.path.dirname(directory)) and not is_shared(directory):
            os.chmod(directory, 0o700)


def is_shared(directory: str) -> bool:
    """Whether a directory is shared with a group. Raises FileNotFoundError."""
    return os.stat(directory or ".").st_mode & _SHARED == _SHARED
