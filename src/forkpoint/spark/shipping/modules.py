"""Ships the program's own modules to executors that cannot access its directory."""

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

    Functions and classes of the program's file itself are shipped by value. A directory with too many modules is skipped.
    """
    home = program_directory()
    if home is None:
        return
    files: dict[str, bytes] = {}
    size, digest = 0, hashlib.sha256()
    for name, content in modules_below(home):
        files[name] = content
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
        size += len(content)
        if size > MAX_BYTES:
            log.warning(
                "the Python files below %s are not sent to the executors because they take more than %d MiB: put the program and "
                "its modules into a directory of their own, or give --py-files",
                home,
                MAX_BYTES >> 20,
            )
            return
    path = Path(sc._temp_dir) / f"program-{digest.hexdigest()[:16]}.zip"  # Spark serves and finally removes it
    if files and not path.exists():
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in files.items():
                archive.writestr(zipfile.ZipInfo(name), content)
        sc.addPyFile(str(path))


def program_directory() -> Path | None:
    """The directory of the file that this process runs; None in an interactive session and for an installed tool."""
    file = getattr(sys.modules["__main__"], "__file__", None)
    home = None if file is None else Path(os.path.realpath(file)).parent
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
