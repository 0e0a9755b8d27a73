"""Builds the documentation's site in build/docs. Any warning is an error, and so is a page that loads external resources:
the site must work, search included, without a network."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "build" / "docs"
_LOADED = (
    re.compile(r"<(?:script|img|iframe|source|video|audio)\b[^>]*\bsrc\s*=\s*[\"']?((?:https?:)?//[^\"'\s>]+)", re.IGNORECASE),
    re.compile(
        r"<link\b(?=[^>]*\brel\s*=\s*[\"']?(?:stylesheet|preload|preconnect|icon))[^>]*\bhref\s*=\s*[\"']?"
        r"((?:https?:)?//[^\"'\s>]+)",
        re.IGNORECASE,
    ),
)
_LOADED_BY_CSS = (
    re.compile(r"@import\s+[\"']((?:https?:)?//[^\"')\s]+)", re.IGNORECASE),
    re.compile(r"url\(\s*[\"']?((?:https?:)?//[^\"')\s]+)", re.IGNORECASE),
)


def loaded_from_elsewhere(site: Path) -> list[str]:
    """Each page or style sheet that loads a resource over the network, with its address."""
    found = []
    for suffix, patterns in ((".html", _LOADED + _LOADED_BY_CSS), (".css", _LOADED_BY_CSS)):
        for file in sorted(site.rglob(f"*{suffix}")):
            text = file.read_text(encoding="utf-8")
            found += [f"{file.relative_to(site)}: {url}" for pattern in patterns for url in pattern.findall(text)]
    return found


def main() -> int:
    from sphinx.cmd.build import main as sphinx_build  # the check alone needs no Sphinx

    options = [
        "-b",
        "html",
        "-W",
        "--keep-going",
        "-q",
        "-E",
        "-a",
        "-c",
        str(ROOT / "docs"),
        "-d",
        str(ROOT / "build" / "doctrees"),
    ]
    if (status := sphinx_build([*options, str(ROOT), str(SITE)])) != 0:
        return status
    if found := loaded_from_elsewhere(SITE):
        print("these pages load something over the network:", *found, sep="\n  ")
        return 1
    (SITE / "index.html").write_text('<meta http-equiv="refresh" content="0; url=docs/README.html">\n')
    print(f"the documentation is in {SITE / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
