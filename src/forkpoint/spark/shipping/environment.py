"""The files of the driver's virtual environment that the executors need: packages, and any interpreter but the system's.

The archive has an environment's layout (bin/python, lib/pythonX.Y/site-packages), wherever the driver keeps the parts. It
excludes files that only the driver needs (Spark's jars) or that Python does not run (tests, headers, command-line scripts).
"""

from __future__ import annotations

import ast
import os
import re
import sys
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from forkpoint.errors import ConfigError

ENVIRONMENT = "environment"  # in the executors' working directories, where Spark unpacks it
PYTHON = f"./{ENVIRONMENT}/bin/python"

# Python versions and library names differ between systems, so the system's own Python is never shipped.
_SYSTEM = Path("/usr")
_NOT_IN_STDLIB = frozenset({"site-packages", "test", "tests", "idlelib", "turtledemo", "ensurepip", "lib2to3"})
_NOT_NEEDED = frozenset({"pyspark/jars", "pyspark/examples", "pyspark/data", "pyspark/licenses"})
_NOT_IN_SOURCES = frozenset({"__pycache__", "node_modules", "site-packages"})
_LAUNCHER = """#!/bin/sh
here=$(dirname "$0")
export LD_LIBRARY_PATH="$here/../lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
exec "$here/%s" "$@"
"""


@dataclass(frozen=True)
class Member:
    """A file of the archive: a copy of ``source``, or one with ``text``, or a link to ``target``."""

    name: str
    source: Path | None = None
    text: str | None = None
    target: str | None = None

    @property
    def stamp(self) -> str:
        """A string that changes with the content."""
        if self.source is None:
            return f"{self.name}\0{self.text}\0{self.target}"
        status = self.source.stat()
        return f"{self.name}\0{status.st_size}\0{status.st_mtime_ns}"


def interpreter() -> Path:
    """The interpreter that the driver's environment links to."""
    return Path(os.path.realpath(sys.executable))


def members() -> Iterator[Member]:
    """The files of this process's environment. Raises ConfigError if it does not work on other hosts."""
    base = Path(os.path.realpath(sys.base_prefix))
    _check(base)
    if base == _SYSTEM:
        yield Member("pyvenv.cfg", Path(sys.prefix, "pyvenv.cfg"))
        yield Member("bin/python", target=str(interpreter()))
        if Path(sys.prefix, "lib64").is_symlink():
            yield Member("lib64", target="lib")
    else:
        yield from _interpreter(base)
    pure, compiled = (Path(sysconfig.get_path(name)) for name in ("purelib", "platlib"))
    for home in (pure,) if os.path.samefile(pure, compiled) else (pure, compiled):
        yield from _packages(home, home.relative_to(sys.prefix).as_posix())


def _check(base: Path) -> None:
    if not sys.platform.startswith("linux"):
        raise ConfigError(f"--ship-env: this environment's packages are for {sys.platform}, but executors run Linux")
    if (base / "conda-meta").is_dir():
        raise ConfigError(
            f"--ship-env: {sys.prefix} uses the Python of a Conda environment; pack that with conda-pack, and give --archives "
            f"ENVIRONMENT.tar.gz#{ENVIRONMENT} --conf spark.pyspark.python={PYTHON}"
        )
    if sys.prefix == sys.base_prefix and base == _SYSTEM:
        raise ConfigError(f"--ship-env: {sys.executable} is the system's Python; use a virtual environment")
    config = Path(sys.prefix, "pyvenv.cfg")
    if config.is_file() and re.search(r"(?im)^include-system-site-packages\s*=\s*true", config.read_text()):
        raise ConfigError(
            f"--ship-env: the environment {sys.prefix} also uses packages outside of it (--system-site-packages), which "
            "executors would lack; create one without that option"
        )


def _interpreter(base: Path) -> Iterator[Member]:
    """The interpreter and the standard library of a Python with its own directory."""
    library = sysconfig.get_config_var("INSTSONAME")
    shared = base / "lib" / str(library)
    if sysconfig.get_config_var("Py_ENABLE_SHARED") and shared.is_file():
        name = interpreter().name
        yield Member(f"bin/{name}", interpreter())
        yield Member("bin/python", text=_LAUNCHER % name)
        yield Member(f"lib/{shared.name}", shared)
    else:
        yield Member("bin/python", interpreter())
    home = Path(sysconfig.get_path("stdlib"))
    for name, path in _walk(home, lambda name: name in _NOT_IN_STDLIB or name.startswith("config-")):
        yield Member(f"lib/{home.name}/{name}", path)


def _packages(home: Path, name: str) -> Iterator[Member]:
    """The packages in a directory, and the sources of editable ones."""
    replaced: set[Path] = set()
    for pth in sorted(home.glob("*.pth")):
        lines: list[str] = []
        for number, line in enumerate(pth.read_text().splitlines()):
            is_path = bool(line.strip()) and not line.startswith(("import ", "import\t", "#"))
            directory = home / line.strip()
            finder = _editable_finder(home, line)
            if finder is not None:
                replaced.add(finder)
                for package, source in _mapping(finder).items():
                    yield from _editable(source, f"{name}/{package}")
            elif is_path and directory.is_dir() and home not in directory.parents:
                inside = f"editable/{pth.stem}-{number}"
                lines.append(os.path.relpath(inside, name))
                yield from _sources(directory, inside)
            else:
                lines.append(line)
        replaced.add(pth)
        yield Member(f"{name}/{pth.name}", text="\n".join(lines) + "\n")
    for inner, path in _walk(home, _NOT_NEEDED.__contains__):
        if path not in replaced:
            yield Member(f"{name}/{inner}", path)


def _editable_finder(home: Path, line: str) -> Path | None:
    """The module with which setuptools finds an editable package, if the line imports one."""
    match = re.match(r"import (__editable___\w+_finder)\b", line)
    path = home / f"{match[1]}.py" if match is not None else None
    return path if path is not None and path.is_file() else None


def _mapping(finder: Path) -> dict[str, Path]:
    """The directories of the packages in setuptools' finder."""
    for node in ast.parse(finder.read_text()).body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(isinstance(target, ast.Name) and target.id == "MAPPING" for target in targets):
            mapping = ast.literal_eval(node.value)
            return {package.replace(".", "/"): Path(directory) for package, directory in mapping.items()}
    return {}


def _editable(source: Path, name: str) -> Iterator[Member]:
    if source.is_dir():
        yield from (Member(f"{name}/{inner}", path) for inner, path in _walk(source, _is_no_source))
    elif (module := source.with_suffix(".py")).is_file():
        yield Member(f"{name}.py", module)


def _sources(home: Path, name: str) -> Iterator[Member]:
    """The importable files in a directory of sources, such as a project's src or the project itself."""
    for entry in sorted(home.iterdir()):
        if entry.is_dir() and entry.name.isidentifier() and not (entry / "pyvenv.cfg").exists():
            files = [Member(f"{name}/{entry.name}/{inner}", path) for inner, path in _walk(entry, _is_no_source)]
            if any(file.name.endswith(".py") for file in files):
                yield from files
        elif entry.suffix in (".py", ".so"):
            yield Member(f"{name}/{entry.name}", entry)


def _is_no_source(directory: str) -> bool:
    name = directory.rpartition("/")[2]
    return name.startswith(".") or name in _NOT_IN_SOURCES


def _walk(home: Path, exclude: Callable[[str], bool]) -> Iterator[tuple[str, Path]]:
    """The files below a directory with their relative paths. ``exclude`` takes a directory's relative path. Files compiled by an
    optimizing Python are excluded, too."""
    for directory, names, files in os.walk(home, followlinks=True):
        prefix = "" if directory == str(home) else f"{os.path.relpath(directory, home)}/"
        names[:] = sorted(name for name in names if not exclude(prefix + name))
        for name in sorted(files):
            path = os.path.join(directory, name)
            if not name.endswith((".opt-1.pyc", ".opt-2.pyc")) and os.path.isfile(path):  # not a dangling link
                yield prefix + name, Path(path)
