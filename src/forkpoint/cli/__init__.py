"""The command line: ``forkpoint``. Thin: it asks, and shows what was answered."""

from forkpoint.cli.command import main

__all__ = ["main"]
