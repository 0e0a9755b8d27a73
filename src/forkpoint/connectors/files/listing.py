"""Lists the files of a file source, and remembers which ones it has read."""

from __future__ import annotations

import base64
import errno
import os
import re
import zlib
from collections.abc import Callable, Iterable
from hashlib import blake2b
from pathlib import Path

import numpy as np

from forkpoint.connectors.files.places import FileEntry, FileListing
from forkpoint.errors import ConfigError, StorageError
from forkpoint.types.acceptance import encodable

_MAGIC = re.compile(r"[*?\[]")
_GLOB_PART = re.compile(r"\*\*/?|[*?]|\[(?P<chars>.[^\]]*)\]|.", re.DOTALL)
_WILDCARDS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def split_glob(path: str) -> tuple[Path, str | None]:
    """The absolute base directory (or file) of a path, and the pattern below it, if any.

    >>> split_glob("/data/events/*/*.json")
    (PosixPath('/data/events'), '*/*.json')

    Existing names are literal: ``a[1].json`` is that file if it exists.
    """
    parts = Path(os.path.abspath(path)).parts
    for i, part in enumerate(parts):
        if _MAGIC.search(part) and not Path(*parts[: i + 1]).exists():
            return Path(*parts[:i]), "/".join(parts[i:])
    return Path(*parts), None


def split_url_glob(url: str) -> tuple[str, str | None]:
    """Like ``split_glob``, for a URL.

    >>> split_url_glob("s3://bucket/events/*/*.json")
    ('s3://bucket/events', '*/*.json')
    """
    scheme, _, rest = url.partition("://")
    parts = rest.split("/")
    for i, part in enumerate(parts):
        if i and _MAGIC.search(part):
            return f"{scheme}://{'/'.join(parts[:i])}", "/".join(parts[i:])
    return url, None


def glob_matcher(pattern: str) -> Callable[[str], bool]:
    """A function that matches paths. ``*`` and ``?`` match within one directory, ``**`` across directories. A pattern without
    ``/`` matches file names in any directory; ``./*.csv`` matches only in the base directory."""

    def translated(part: re.Match[str]) -> str:
        chars = part["chars"]
        if chars is None:
            return _WILDCARDS.get(part[0]) or re.escape(part[0])
        chars = chars.replace("\\", r"\\")
        return f"[^{chars[1:]}]" if chars[0] == "!" else f"[{chars}]"

    pattern = pattern.removeprefix("./") if "/" in pattern else "**/" + pattern
    try:
        regex = re.compile(_GLOB_PART.sub(translated, pattern))
    except re.error as e:
        raise ConfigError(f"file pattern {pattern!r} is not a valid glob: {e}; use *, ?, [...] and **") from None
    return lambda path: regex.fullmatch(path) is not None


class Listing(FileListing):
    """Lists the visible files at or below ``base`` that match ``pattern``. A hidden directory hides its contents. Ignores
    dangling links, and links to a parent directory.

    Reads only the names of known files and stats the others. A replaced file is new because its inode is.
    """

    def __init__(self, base: Path, pattern: str | None) -> None:
        self.base = base
        self.pattern = pattern
        self._matches = None if pattern is None else glob_matcher(pattern)
        self._known: dict[str, dict[str, int]] = {}  # directory → name → inode

    def appeared(self) -> list[FileEntry]:
        if self.base.is_file():
            stat = self.base.stat()
            before, self._known = self._known, {"": {".": stat.st_ino}}
            if self._known == before:
                return []
            return [FileEntry(stat.st_mtime_ns, ".", stat.st_size)]
        found: list[FileEntry] = []
        known: dict[str, dict[str, int]] = {}
        directories = [""]
        while directories:
            prefix = directories.pop()
            try:
                with os.scandir(self.base / prefix) as entries:
                    known[prefix] = self._look(prefix, entries, directories, found)
            except FileNotFoundError:
                if not prefix:
                    raise StorageError(
                        f"{self.base}: the directory of a file source is gone; restore it, or remove the source from the job"
                    ) from None
        self._known = known
        return found

    def _look(
        self, prefix: str, entries: Iterable[os.DirEntry[str]], directories: list[str], found: list[FileEntry]
    ) -> dict[str, int]:
        before, now = self._known.get(prefix, {}), dict[str, int]()
        for entry in entries:
            name, inode = entry.name, entry.inode()
            if before.get(name) == inode:
                now[name] = inode
                continue
            if name.startswith((".", "_")):  # hidden
                continue
            path = prefix + name
            try:
                if entry.is_dir():
                    if not (entry.is_symlink() and _is_cycle(entry.path)):
                        directories.append(path + "/")
                elif entry.is_file():
                    if self._matches is None or self._matches(path):
                        stat = entry.stat()
                        found.append(FileEntry(stat.st_mtime_ns, _in_utf8(path, self.base), stat.st_size))
                    now[name] = inode
            except FileNotFoundError:  # renamed or removed concurrently
                continue
            except OSError as error:
                if error.errno != errno.ELOOP:  # a link to itself
                    raise
        return now

    def forget(self, path: str) -> None:
        directory, _, name = path.rpartition("/")
        self._known.get(directory and directory + "/", {}).pop(name, None)


def _is_cycle(link: str) -> bool:
    """Whether the target of a link contains the link."""
    target = os.path.realpath(link)
    parent = os.path.realpath(os.path.dirname(link))
    return os.path.commonpath((target, parent)) == target


def _in_utf8(path: str, base: Path) -> str:
    if not encodable(path):
        raise StorageError(
            f"{base}: the file name {os.fsencode(path)!r} is not UTF-8, so positions cannot hold it; rename the file, or "
            "give the source a pattern that excludes it"
        )
    return path


class SeenFiles:
    """A bounded memory of the files that were read, by path, so that no file is read twice and late files are still found.

    It remembers files modified after ``horizon_ns``; older ones count as read. The horizon rises when there are more than
    ``limit`` files, and stays within ``max_age_ns`` of the newest file read. So a late file is read unless it is older than
    ``limit`` read files.
    """

    def __init__(self, limit: int, max_age_ns: int | None) -> None:
        self._limit = limit
        self._max_age_ns = max_age_ns
        self._mtime_of: dict[int, int] = {}
        self.horizon_ns: int | None = None
        self.newest_ns: int | None = None
        self._json: dict[str, object] | None = None

    def is_new(self, entry: FileEntry) -> bool:
        return not self._is_old(entry) and _hash(entry.path) not in self._mtime_of

    def is_too_late(self, entry: FileEntry) -> bool:
        """Whether a file counts as read only because of its age."""
        return self._is_old(entry) and _hash(entry.path) not in self._mtime_of

    def _is_old(self, entry: FileEntry) -> bool:
        return self.horizon_ns is not None and entry.mtime_ns <= self.horizon_ns

    @property
    def remembered(self) -> int:
        return len(self._mtime_of)

    def add(self, entry: FileEntry) -> None:
        self._json = None
        self._mtime_of[_hash(entry.path)] = entry.mtime_ns
        self.newest_ns = entry.mtime_ns if self.newest_ns is None else max(self.newest_ns, entry.mtime_ns)

    def forget(self, oldest_pending_ns: int | None) -> None:
        """Raise the horizon as the limits demand, but not beyond a pending file."""
        if self.newest_ns is None:
            return
        horizon = self.horizon_ns
        if len(self._mtime_of) > self._limit:
            mtimes = sorted(self._mtime_of.values())
            # Files of one modification time are forgotten together, so more than the limit may remain.
            horizon = mtimes[len(mtimes) - self._limit] - 1
        if self._max_age_ns is not None:
            horizon = max(horizon or 0, self.newest_ns - self._max_age_ns - 1)
        if horizon is None:
            return
        if oldest_pending_ns is not None:
            horizon = min(horizon, oldest_pending_ns - 1)
        if self.horizon_ns is None or horizon > self.horizon_ns:
            self.horizon_ns, self._json = horizon, None
            self._mtime_of = {h: m for h, m in self._mtime_of.items() if m > horizon}

    def to_json(self) -> dict[str, object]:
        if self._json is None:
            ordered = sorted((m, h) for h, m in self._mtime_of.items())
            # Differences of sorted times compress well, hashes do not: about 15 characters per file.
            times = np.diff(np.array([m for m, _ in ordered], dtype=np.int64), prepend=0)
            hashes = np.array([h for _, h in ordered], dtype=np.uint64)
            packed = zlib.compress(times.astype("<i8").tobytes() + hashes.astype("<u8").tobytes(), 1)
            self._json = {
                "horizon": self.horizon_ns,
                "newest": self.newest_ns,
                "remembered": len(ordered),
                "hashes": base64.b64encode(packed).decode("ascii"),
            }
        return self._json

    def restore(self, saved: dict[str, object]) -> None:
        self._json = None
        raw = zlib.decompress(base64.b64decode(str(saved["hashes"])))
        half = len(raw) // 2
        times = np.cumsum(np.frombuffer(raw[:half], dtype="<i8"))
        hashes = np.frombuffer(raw[half:], dtype="<u8")
        self._mtime_of = dict(zip(hashes.tolist(), times.tolist(), strict=True))
        self.horizon_ns = saved["horizon"]  # type: ignore[assignment]
        self.newest_ns = saved["newest"]  # type: ignore[assignment]


def _hash(path: str) -> int:
    """A 64-bit hash of a path: with a million files, the probability of a collision is 1 in 37 million."""
    return int.from_bytes(blake2b(path.encode("utf-8", "surrogateescape"), digest_size=8).digest(), "little")
