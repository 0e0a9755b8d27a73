"""The command line: ``forkpoint``. It parses arguments, calls operations and prints results."""

from forkpoint.cli.command import main

__all__ = ["main"]
