"""What of the driver's virtual environment goes to the executors: its packages, and the interpreter unless it is the system's.

The archive is laid out as an environment (bin/python, lib/pythonX.Y/site-packages), wherever the parts are here. Left out is what
only the driver needs (Spark's jars) or what is no part of running Python (tests, headers, command-line scripts).
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

ENVIRONMENT = "environment"  # where Spark unpacks it, in the executors' working directories
PYTHON = f"./{ENVIRONMENT}/bin/python"

# Python versions and library names differ between systems, so nothing of the system's own Python travels.
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
        """Changes with the content."""
        if self.source is None:
            return f"{self.name}\0{self.text}\0{self.target}"
        found = self.source.stat()
        return f"{self.name}\0{found.st_size}\0{found.st_mtime_ns}"


def interpreter() -> Path:
    """The interpreter that the driver's environment links to."""
    return Path(os.path.realpath(sys.executable))


def members() -> Iterator[Member]:
    """The files of this process's environment. Raises ConfigError if it cannot be used elsewhere."""
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
            "executors would lack; make one without them"
        )


def _interpreter(base: Path) -> Iterator[Member]:
    """The interpreter and the standard library, for a Python that has a directory of its own."""
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
    """The packages in a directory, and the sources of those that are installed as editable."""
    replaced: set[Path] = set()
    for place in sorted(home.glob("*.pth")):
        lines: list[str] = []
        for number, line in enumerate(place.read_text().splitlines()):
            found = home / line.strip()
            finder = _editable_finder(home, line)
            if finder is not None:
                replaced.add(finder)
                for package, source in _mapping(finder).items():
                    yield from _editable(source, f"{name}/{package}")
            elif _is_path(line) and found.is_dir() and home not in found.parents:
                inside = f"editable/{place.stem}-{number}"
                lines.append(os.path.relpath(inside, name))
                yield from _sources(found, inside)
            else:
                lines.append(line)
        replaced.add(place)
        yield Member(f"{name}/{place.name}", text="\n".join(lines) + "\n")
    for inner, path in _walk(home, _NOT_NEEDED.__contains__):
        if path not in replaced:
            yield Member(f"{name}/{inner}", path)


def _is_path(line: str) -> bool:
    return bool(line.strip()) and not line.startswith(("import ", "import\t", "#"))


def _editable_finder(home: Path, line: str) -> Path | None:
    """The module with which setuptools finds an editable package, if that is what the line imports."""
    found = re.match(r"import (__editable___\w+_finder)\b", line)
    place = home / f"{found[1]}.py" if found is not None else None
    return place if place is not None and place.is_file() else None


def _mapping(finder: Path) -> dict[str, Path]:
    """The places of the packages that setuptools' finder knows."""
    for node in ast.parse(finder.read_text()).body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(isinstance(each, ast.Name) and each.id == "MAPPING" for each in targets):
            found = ast.literal_eval(node.value)
            return {package.replace(".", "/"): Path(place) for package, place in found.items()}
    return {}


def _editable(source: Path, name: str) -> Iterator[Member]:
    if source.is_dir():
        yield from (Member(f"{name}/{inner}", path) for inner, path in _walk(source, _is_no_source))
    elif (module := source.with_suffix(".py")).is_file():
        yield Member(f"{name}.py", module)


def _sources(home: Path, name: str) -> Iterator[Member]:
    """What can be imported from a directory of sources, such as a project's src or the project itself."""
    for entry in sorted(home.iterdir()):
        if entry.is_dir() and entry.name.isidentifier() and not (entry / "pyvenv.cfg").exists():
            files = [Member(f"{name}/{entry.name}/{inner}", path) for inner, path in _walk(entry, _is_no_source)]
            if any(each.name.endswith(".py") for each in files):
                yield from files
        elif entry.suffix in (".py", ".so"):
            yield Member(f"{name}/{entry.name}", entry)


def _is_no_source(directory: str) -> bool:
    name = directory.rpartition("/")[2]
    return name.startswith(".") or name in _NOT_IN_SOURCES


def _walk(home: Path, without: Callable[[str], bool]) -> Iterator[tuple[str, Path]]:
    """The files below a directory with their relative paths. ``without``: whether a directory, by its relative path, is left out.
    Files that an optimizing Python compiled are, too."""
    for directory, names, files in os.walk(home, followlinks=True):
        prefix = "" if directory == str(home) else f"{os.path.relpath(directory, home)}/"
        names[:] = sorted(name for name in names if not without(prefix + name))
        for name in sorted(files):
            place = os.path.join(directory, name)
            if not name.endswith((".opt-1.pyc", ".opt-2.pyc")) and os.path.isfile(place):  # not a dangling link
                yield prefix + name, Path(place)
