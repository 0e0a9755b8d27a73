"""Paths and URLs as users write and read them."""

from __future__ import annotations

import os
from urllib.parse import unquote, urlsplit


def absolute(place: str) -> str:
    """A path or URL that does not depend on the working directory."""
    return place if "://" in place or place.startswith("file:") else os.path.abspath(os.path.expanduser(place))


def plain_place(url: str) -> str:
    """The path of a local file URL; any other URL as it is."""
    return unquote(urlsplit(url).path) if url.startswith("file:///") else url
