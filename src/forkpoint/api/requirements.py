"""Installs the packages of a PyFlink program's requirements file for the lifetime of this process."""

from __future__ import annotations

import atexit
import importlib.metadata
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from forkpoint.errors import ConfigError

_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")
_OURS = {"apache-flink", "apache-flink-libraries", "pyflink"}


def add_requirements(file: str, cache: str | None) -> None:
    """Install missing packages and add them to the import path, which workers inherit. ConfigError on failure."""
    call = f"set_python_requirements({file!r})"
    try:
        lines = Path(file).read_text().splitlines()
    except OSError as error:
        raise ConfigError(f"{call}: {error.strerror}") from None
    wanted = [line for line in lines if _is_missing(line)]
    if not wanted:
        return
    if importlib.util.find_spec("pip") is None:
        raise ConfigError(f"{call}: {wanted[0]} is not installed, and there is no pip to do so; install it yourself")
    directory = tempfile.mkdtemp(prefix="forkpoint-requirements-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    requirements = Path(directory, "requirements.txt")
    requirements.write_text("\n".join(wanted) + "\n")
    packages = str(Path(directory, "packages"))
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", packages]
    source = [] if cache is None else ["--no-index", "--no-build-isolation", "--find-links", cache]
    done = subprocess.run([*command, *source, "-r", str(requirements)], capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip()).rpartition("\n")[2]
        raise ConfigError(f"{call}: pip cannot install {', '.join(wanted)} ({last}); install them yourself")
    sys.path.append(packages)


def _is_missing(line: str) -> bool:
    """Whether a line of a requirements file names a package of which no version is installed; False for options."""
    found = _NAME.match(line)
    if found is None or found[1].lower() in _OURS:
        return False
    try:
        importlib.metadata.version(found[1])
    except importlib.metadata.PackageNotFoundError:
        return True
    return False
