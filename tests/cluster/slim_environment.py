"""A virtual environment with forkpoint's dependencies and nothing else, in which forkpoint itself is editable."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]


def make_environment(place: Path, *more: str) -> Path:
    """Make it, without a network: its packages are links to those of this one. ``more``: further ones. Returns its
    interpreter."""
    subprocess.check_call([sys.executable, "-m", "venv", "--without-pip", str(place)])
    (packages,) = place.glob("lib/*/site-packages")
    needed = ["forkpoint", *more]
    for name in needed:
        distribution = importlib.metadata.distribution(name)
        for text in distribution.requires or ():
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                needed += [] if requirement.name in needed else [requirement.name]
        for file in distribution.files or ():
            if ".." not in file.parts and "__pycache__" not in file.parts and not file.name.startswith("_editable"):
                _link(Path(str(distribution.locate_file(file))), packages / file)
        # Of what an older pip has installed, the metadata is not among the files.
        here = Path(str(distribution.locate_file("")))
        for metadata in here.glob(f"{name.replace('-', '_')}-*.egg-info/*"):
            _link(metadata, packages / metadata.relative_to(here))
    (packages / "_editable_impl_forkpoint.pth").write_text(f"{ROOT / 'src'}\n")
    return place / "bin" / "python"


def _link(file: Path, target: Path) -> None:
    if file.exists() and not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        os.symlink(os.path.realpath(file), target)
