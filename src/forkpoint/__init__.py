"""Stateful stream processing in Python on Spark, with savepoints you can stop, fork and rewind."""

from typing import TYPE_CHECKING, Any

from forkpoint.lazy import loader

if TYPE_CHECKING:
    from forkpoint.public import *  # noqa: F403 (mypy and pyright know its __all__)

_load = loader(__name__, listing=f"{__name__}.public")


def __getattr__(name: str) -> Any:
    """Load each public name when it is first used: a program, a worker and shell completion load only what they need."""
    if name == "__all__":
        from forkpoint.public import __all__

        return __all__
    return _load(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})
