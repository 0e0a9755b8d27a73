"""Paths and URLs as users write and read them."""

from __future__ import annotations

import os
from urllib.parse import unquote, urlsplit


def absolute(location: str) -> str:
    """A path or URL that does not depend on the working directory."""
    return location if "://" in location or location.startswith("file:") else os.path.abspath(os.path.expanduser(location))


def plain_place(url: str) -> str:
    """The path of a local file URL; any other URL unchanged."""
    return unquote(urlsplit(url).path) if url.startswith("file:///") else url
