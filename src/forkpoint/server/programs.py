"""Uploaded programs: files below the server's own directory, named by their content."""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from forkpoint.errors import ConfigError, ForkpointError
from forkpoint.storage.private import make_directories, open_new

MAX_BYTES = 16 << 20
MAX_FILES = 1_000
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}\.py")
_ID = re.compile(r"[0-9a-f]{32}")


class ProgramNotFound(ForkpointError):
    """No program of this id was uploaded."""


@dataclass(frozen=True)
class Uploaded:
    """``file``: the program, next to its modules."""

    id: str
    name: str
    file: Path
    bytes: int
    uploaded_ms: int


class Programs:
    """The uploaded programs: Python files, or ZIP archives of a Python file and its modules."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def add(self, name: str, data: bytes) -> Uploaded:
        """Store a program. ``name``: of its file, also inside an archive. Raises ConfigError."""
        if not _NAME.fullmatch(name):
            raise ConfigError(f"{name!r} does not name a Python file; give a plain name such as app.py")
        if not data:
            raise ConfigError(f"the program {name} is empty")
        files = _unpacked(data) if data[:4] == b"PK\x03\x04" else {name: data}
        if name not in files:
            raise ConfigError(f"the archive has no {name}; it has {', '.join(sorted(files)[:10])}")
        try:
            compile(files[name], name, "exec")
        except (SyntaxError, ValueError) as error:
            raise ConfigError(f"{name} is not a Python program: {error}") from None
        except (MemoryError, RecursionError, OverflowError):  # the parser's errors for deep nesting
            raise ConfigError(f"{name} is nested too deeply for Python to compile") from None
        program = hashlib.sha256(name.encode() + b"\n" + data).hexdigest()[:32]
        directory = self._directory / program
        for path, content in files.items():
            target = directory / path
            make_directories(str(target.parent))
            if not target.exists():
                with open(open_new(str(target)), "wb") as file:
                    file.write(content)
        (directory / ".program").write_text(name)
        return self.find(program)

    def find(self, program: str) -> Uploaded:
        """Raises ProgramNotFound."""
        marker = self._directory / program / ".program"
        if not _ID.fullmatch(program) or not marker.is_file():
            raise ProgramNotFound(f"there is no program {program!r}; upload it with POST /v1/programs")
        file = marker.parent / marker.read_text()
        return Uploaded(program, file.name, file, file.stat().st_size, int(marker.stat().st_mtime * 1000))

    def all(self) -> list[Uploaded]:
        """All programs, newest first."""
        found = [self.find(marker.parent.name) for marker in self._directory.glob("*/.program")]
        return sorted(found, key=lambda each: (-each.uploaded_ms, each.id))


def _unpacked(data: bytes) -> dict[str, bytes]:
    """The files of an archive. Raises ConfigError for paths outside of it, and if it is too large."""
    files: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [each for each in archive.infolist() if not each.is_dir()]
            if len(members) > MAX_FILES or sum(each.file_size for each in members) > 4 * MAX_BYTES:
                raise ConfigError(f"the archive has more than {MAX_FILES:,} files, or {4 * MAX_BYTES:,} bytes")
            for member in members:
                path = PurePosixPath(member.filename)
                if (
                    not path.parts
                    or path.is_absolute()
                    or ".." in path.parts
                    or "\\" in member.filename
                    or path.parts[0].startswith(".")
                ):
                    raise ConfigError(f"the archive has {member.filename!r}, which is not a plain path inside it")
                files[str(path)] = archive.read(member)
            if both := {str(parent) for path in files for parent in PurePosixPath(path).parents} & set(files):
                raise ConfigError(f"the archive has {min(both)!r} as a file and as a directory")
    except (zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError, EOFError, OSError, ValueError) as error:
        raise ConfigError(f"the archive cannot be read: {error}") from None
    return files
