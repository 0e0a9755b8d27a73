"""PyFlink's programs without a line changed: ``import pyflink…`` finds forkpoint.

    python -m forkpoint.pyflink app.py ARGS          forkpoint run --pyflink app.py -- ARGS

``install()`` does it for the process at hand, and for the workers that run its jobs. ``names`` says what stands for what,
``absent`` what is not there and what to use in its place. What the names stand for is where it belongs in forkpoint: there
is nothing here but the map.
"""

from forkpoint.pyflink.finder import install, installed
from forkpoint.pyflink.names import resolve

__all__ = ["install", "installed", "resolve"]
