"""Runs a program's file: SQL as a script, Python as ``python`` would, as ``__main__``, with its arguments and path."""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType


@dataclass(frozen=True)
class Source:
    """A program to run. ``path``: as given. ``directories``: of its modules; a recorded program may have several."""

    path: str
    text: bytes
    directories: tuple[str, ...]

    @property
    def place(self) -> str:
        return os.path.abspath(self.path)

    @classmethod
    def read(cls, path: str) -> Source:
        return cls(path, Path(path).read_bytes(), (os.path.dirname(os.path.realpath(path)),))


def is_sql(path: str) -> bool:
    """Whether a program is a file of SQL."""
    return path.lower().endswith(".sql")


def run_program(program: Source) -> None:
    """Run the program to its end. Its exceptions propagate, including SystemExit.

    The module stays in ``sys.modules`` as ``__main__`` while the caller is in ``as_main``: cloudpickle ships classes and
    functions of ``__main__`` by value, so tasks in other processes do not need this program's file. Annotations are resolved in
    the module by name while its jobs run.
    """
    place = program.place
    if is_sql(place):
        from forkpoint.table.script import run_script

        run_script(program.text, place)
        return
    # Tracebacks then show the lines that ran, even if the file has changed since.
    lines = program.text.decode(errors="replace").splitlines(keepends=True)
    linecache.cache[place] = (len(program.text), None, lines, place)
    exec(compile(program.text, place, "exec", dont_inherit=True), sys.modules["__main__"].__dict__)


@contextmanager
def as_main(program: Source, args: Sequence[str]) -> Iterator[None]:
    """Within this context, the process looks as if ``python path args`` had started it."""
    directories = list(program.directories)
    kept_argv, kept_path, kept_main = sys.argv, list(sys.path), sys.modules["__main__"]
    kept_python_path = os.environ.get("PYTHONPATH")
    module = ModuleType("__main__")
    module.__file__ = program.place
    module.__spec__ = None
    module.__dict__["__builtins__"] = __builtins__
    sys.argv = [program.path, *args]
    # With safe_path, Python adds no directory in front.
    sys.path[: 0 if sys.flags.safe_path else 1] = directories
    # Local modules of the program are shipped by name, so the engine's worker processes must find them, too.
    os.environ["PYTHONPATH"] = os.pathsep.join(part for part in (*directories, kept_python_path) if part)
    sys.modules["__main__"] = module
    try:
        yield
    finally:
        sys.argv, sys.path[:], sys.modules["__main__"] = kept_argv, kept_path, kept_main
        if kept_python_path is None:
            os.environ.pop("PYTHONPATH", None)
        else:
            os.environ["PYTHONPATH"] = kept_python_path
