"""The import hook for PyFlink's modules, which contain forkpoint's objects under PyFlink's names."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from forkpoint.errors import ConfigError
from forkpoint.pyflink.absent import absent_module, absent_name, unknown
from forkpoint.pyflink.names import KNOWN, MODULES, resolve
from forkpoint.types import before_loading

ROOT = "pyflink"


def install() -> None:
    """Make ``import pyflink…`` find forkpoint, in this process and the workers of its jobs. Idempotent.

    Raises ConfigError if PyFlink itself is already loaded.
    """
    if installed():
        return
    if ROOT in sys.modules:
        raise ConfigError(
            "PyFlink itself is already loaded in this process: call forkpoint.pyflink.install() before the first "
            "`import pyflink`, or run the program with `python -m forkpoint.pyflink`"
        )
    sys.meta_path.insert(0, _Finder())  # takes precedence over an installed PyFlink
    before_loading(install)


def installed() -> bool:
    """Whether ``import pyflink…`` finds forkpoint in this process."""
    return any(isinstance(finder, _Finder) for finder in sys.meta_path)


class _Finder(MetaPathFinder):
    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname in MODULES or absent_module(fullname) is not None:
            return ModuleSpec(fullname, _Loader(), is_package=True)
        if fullname.startswith(f"{ROOT}."):
            # `from pyflink.common import Flow` also gets here, because Python looks for a module if there is no such name.
            # Python's own error would only say that the location is unknown.
            raise ModuleNotFoundError(unknown(fullname))
        return None


class _Loader(Loader):
    def exec_module(self, module: ModuleType) -> None:
        names = MODULES.get(module.__name__, ())
        for name in names:
            setattr(module, name, resolve(name, module.__name__))
        module.__dict__["__all__"] = list(names)
        module.__doc__ = f"forkpoint under the names of {module.__name__}."

        def __getattr__(name: str) -> object:  # noqa: N807
            if name in KNOWN and absent_module(f"{module.__name__}.{name}") is None:
                return resolve(name, module.__name__)
            if name.startswith("__"):  # the import system and tools ask for these
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            found = absent_name(module.__name__, name)
            if found is not None:
                return found
            raise AttributeError(unknown(f"{module.__name__}.{name}"))

        module.__dict__["__getattr__"] = __getattr__
