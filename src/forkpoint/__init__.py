"""Stateful stream processing in Python on Spark, with savepoints you can stop, fork and rewind."""

from typing import TYPE_CHECKING, Any

from forkpoint.extras import installed_names, loader

if TYPE_CHECKING:
    from forkpoint.packages import *  # noqa: F403 (mypy and pyright know its __all__)
    from forkpoint.public import *  # noqa: F403

_load = loader(__name__, "forkpoint.public", "forkpoint.packages")


def __getattr__(name: str) -> Any:
    """Load each public name on first use: a program, a worker and shell completion load only what they need."""
    if name == "__all__":
        from forkpoint.public import __all__

        return sorted([*__all__, *installed_names()], key=lambda each: (not each.isupper(), each))
    return _load(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})
