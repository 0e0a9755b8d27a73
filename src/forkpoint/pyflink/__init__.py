"""Runs unchanged PyFlink programs: ``import pyflink…`` finds forkpoint.

    python -m forkpoint.pyflink app.py ARGS          forkpoint run --pyflink app.py -- ARGS

``install()`` does this for the current process and the workers of its jobs. ``names`` maps PyFlink's names to forkpoint's;
``absent`` has the names that forkpoint lacks, with alternatives.
"""

from forkpoint.pyflink.finder import install, installed
from forkpoint.pyflink.names import resolve

__all__ = ["install", "installed", "resolve"]
