"""Stateful stream processing in Python on Spark, with savepoints you can stop, fork and rewind."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forkpoint.public import *  # noqa: F403 (mypy and pyright know its __all__)


def __getattr__(name: str) -> Any:
    """Load the public names with the first one that is used: shell completion and pytest import only what they need."""
    from importlib import import_module
    from importlib.util import find_spec

    if find_spec(f"{__name__}.{name}") is not None:
        return import_module(f"{__name__}.{name}")
    if name == "__all__" or not name.startswith("__"):
        public = import_module(f"{__name__}.public")
        globals().update({"__all__": public.__all__, **{each: getattr(public, each) for each in public.__all__}})
    try:
        return globals()[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})
