"""Places as people write and read them: paths and URLs."""

from __future__ import annotations

import os
from urllib.parse import unquote, urlsplit


def absolute(place: str) -> str:
    """A path or URL that means the same from any directory."""
    return place if "://" in place or place.startswith("file:") else os.path.abspath(os.path.expanduser(place))


def plain_place(url: str) -> str:
    """A URL, or the plain path if it is one of this machine's disk."""
    return unquote(urlsplit(url).path) if url.startswith("file:///") else url
