"""Running a program's file as ``python`` would: as ``__main__``, with its own arguments and path."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType


def run_program(path: str, args: Sequence[str]) -> None:
    """Run the file to its end. Whatever it raises comes through, SystemExit too.

    The module stays in ``sys.modules`` as ``__main__`` while the caller is in ``as_main``: cloudpickle ships classes
    and functions of ``__main__`` by value, so tasks in other processes need no file of this program; and annotations
    are looked up in the module by name as long as its jobs run.
    """
    place = os.path.abspath(path)
    with open(place, "rb") as file:
        code = compile(file.read(), place, "exec", dont_inherit=True)
    exec(code, sys.modules["__main__"].__dict__)


@contextmanager
def as_main(path: str, args: Sequence[str]) -> Iterator[None]:
    """Within it, this process looks as if ``python path args`` had started it."""
    directory = os.path.dirname(os.path.realpath(path))
    kept_argv, kept_path, kept_main = sys.argv, list(sys.path), sys.modules["__main__"]
    kept_python_path = os.environ.get("PYTHONPATH")
    module = ModuleType("__main__")
    module.__file__ = os.path.abspath(path)
    module.__spec__ = None
    module.__dict__["__builtins__"] = __builtins__
    sys.argv = [path, *args]
    # With a safe path, Python puts nothing of its own first.
    sys.path[: 0 if sys.flags.safe_path else 1] = [directory]
    # Modules beside the program are shipped by name, so the engine's worker processes have to find them too.
    os.environ["PYTHONPATH"] = os.pathsep.join(part for part in (directory, kept_python_path) if part)
    sys.modules["__main__"] = module
    try:
        yield
    finally:
        sys.argv, sys.path[:], sys.modules["__main__"] = kept_argv, kept_path, kept_main
        if kept_python_path is None:
            os.environ.pop("PYTHONPATH", None)
        else:
            os.environ["PYTHONPATH"] = kept_python_path
