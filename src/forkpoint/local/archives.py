"""What ``spark.archives`` names, in the working directory of tasks, as Spark's executors have it."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from urllib.parse import unquote, urlparse

from forkpoint.errors import ConfigError


class Archives:
    """Archives, unpacked for the first task. ``given``: "path#directory,…"."""

    def __init__(self, given: str) -> None:
        self._given = [each.strip() for each in given.split(",") if each.strip()]
        self._place: str | None = None

    @contextmanager
    def entered(self) -> Iterator[None]:
        """While tasks run, this process is in the directory of the archives, if there are any. Raises ConfigError."""
        if not self._given:
            yield
            return
        if self._place is None:
            self._place = self._unpacked()
        with chdir(self._place):
            yield

    def remove(self) -> None:
        """Remove what was unpacked."""
        if self._place is not None:
            shutil.rmtree(self._place, ignore_errors=True)
            self._place = None

    def _unpacked(self) -> str:
        place = tempfile.mkdtemp(prefix="forkpoint-archives-")
        for each in self._given:
            location, _, target = each.partition("#")
            path = unquote(urlparse(location).path) if location.startswith("file:") else location
            form = {} if path.endswith(".zip") else {"filter": "data"}
            try:
                shutil.unpack_archive(path, Path(place, target or os.path.basename(path)), **form)  # type: ignore[arg-type]
            except (OSError, ValueError, tarfile.TarError) as error:
                shutil.rmtree(place, ignore_errors=True)
                raise ConfigError(f"the archive {each!r} cannot be unpacked: {error}") from None
        return place
