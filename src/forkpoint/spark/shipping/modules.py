"""The program's own modules, for executors that do not see its directory."""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

from pyspark import SparkContext

log = logging.getLogger("forkpoint")

MAX_BYTES = 50 << 20
_EXCLUDED = frozenset({"__pycache__", "node_modules", "site-packages"})


def ship_program(sc: SparkContext) -> None:
    """Put the modules in the program's directory on the executors' import path.

    Functions and classes of the program's file itself travel by value. A directory with too many modules is left out.
    """
    home = program_directory()
    if home is None:
        return
    files: dict[str, bytes] = {}
    size = 0
    for name, content in modules_below(home):
        files[name] = content
        size += len(content)
        if size > MAX_BYTES:
            log.warning(
                "the Python files below %s are not sent to the executors, as they take more than %d MiB: put the program and its "
                "modules into a directory of their own, or give --py-files",
                home,
                MAX_BYTES >> 20,
            )
            return
    archive = Path(sc._temp_dir) / f"program-{_digest(files)}.zip"  # Spark serves it from there, and removes it in the end
    if files and not archive.exists():
        _write(files, archive)
        sc.addPyFile(str(archive))


def program_directory() -> Path | None:
    """The directory of the file that this process runs, None in an interactive session and for an installed tool."""
    place = getattr(sys.modules["__main__"], "__file__", None)
    home = None if place is None else Path(os.path.realpath(place)).parent
    return None if home is None or "site-packages" in home.parts else home


def modules_below(home: Path) -> Iterator[tuple[str, bytes]]:
    """The Python files below a directory by relative path, without hidden directories, environments and the caches of tools."""
    for directory, names, files in os.walk(home):
        names[:] = sorted(name for name in names if not _is_excluded(Path(directory, name)))
        for name in sorted(files):
            if name.endswith(".py"):
                path = Path(directory, name)
                yield path.relative_to(home).as_posix(), path.read_bytes()


def _is_excluded(directory: Path) -> bool:
    return directory.name.startswith(".") or directory.name in _EXCLUDED or (directory / "pyvenv.cfg").exists()


def _digest(files: dict[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name, content in files.items():
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def _write(files: dict[str, bytes], place: Path) -> None:
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content)
