"""A JDK and Maven: Flink's jars, which Maven gets the first time, and the compiled Java sources of a directory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

OPENS = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in ("lang", "time", "util")]


def tool(name: str) -> str:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(name, path=f"{home}/bin") if home else None
    found = found or shutil.which(name)
    if found is None:
        sys.exit(f"record.py: {name} was not found; install a JDK of version 17 or newer and Maven")
    return found


def class_path(sources: Path, work: Path) -> str:
    """The jars of ``sources/pom.xml`` and the classes of ``sources/src``, both brought into ``work``."""
    jars, classes = work / "libs", work / "classes"
    pom, stamp = sources / "pom.xml", work / "pom.xml"
    work.mkdir(parents=True, exist_ok=True)
    if not stamp.exists() or stamp.read_text() != pom.read_text():
        shutil.rmtree(jars, ignore_errors=True)
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
        subprocess.run([tool("mvn"), "--quiet", "--batch-mode", "--file", str(pom), *goal], check=True)
        shutil.copy(pom, stamp)
    shutil.rmtree(classes, ignore_errors=True)
    classes.mkdir(parents=True)
    files = sorted(map(str, sources.glob("src/*.java")))
    options = ["-nowarn", "-Xlint:none", "-cp", f"{jars}/*", "-d", str(classes)]
    subprocess.run([tool("javac"), *options, *files], check=True)
    return f"{classes}:{jars}/*"
