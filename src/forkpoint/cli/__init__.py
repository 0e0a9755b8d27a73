"""The command line: ``forkpoint``. It parses arguments, calls operations and prints results."""

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forkpoint.cli.command import main

__all__ = ["main"]


def __getattr__(name: str) -> Any:
    """``main``: the installed script's entry point. For a shell's completions, commands take too long to load."""
    if name != "main":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if "_FORKPOINT_COMPLETE" in os.environ:
        from forkpoint.cli.completion import main as complete

        return complete
    from forkpoint.cli.command import main

    return main
