"""Unpacks ``spark.archives`` into the working directory of tasks, as Spark's executors do."""

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
    """Archives, unpacked for the first task. ``option``: "path#directory,…"."""

    def __init__(self, option: str) -> None:
        self._archives = [archive.strip() for archive in option.split(",") if archive.strip()]
        self._directory: str | None = None

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Run tasks in the directory of the archives, if there are any. ConfigError if one cannot be unpacked."""
        if not self._archives:
            yield
            return
        if self._directory is None:
            self._directory = self._unpacked()
        with chdir(self._directory):
            yield

    def remove(self) -> None:
        """Remove the unpacked archives."""
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def _unpacked(self) -> str:
        directory = tempfile.mkdtemp(prefix="forkpoint-archives-")
        for archive in self._archives:
            location, _, target = archive.partition("#")
            path = unquote(urlparse(location).path) if location.startswith("file:") else location
            form = {} if path.endswith(".zip") else {"filter": "data"}
            try:
                shutil.unpack_archive(path, Path(directory, target or os.path.basename(path)), **form)  # type: ignore[arg-type]
            except (OSError, ValueError, tarfile.TarError) as error:
                shutil.rmtree(directory, ignore_errors=True)
                raise ConfigError(f"the archive {archive!r} cannot be unpacked: {error}") from None
        return directory
