"""Builds the distributions and tests them as a user would: in an environment with the core's wheel and its declared dependencies
only, to which the packages beside it are then added.

The dependencies are linked from the development environment, whose versions are locked, instead of being downloaded again:
Spark alone is 450 MB. Extras are left out, so this also shows that they are optional.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
import venv
from importlib.metadata import Distribution, distribution, version
from pathlib import Path

from packaging.requirements import Requirement

from forkpoint.packages import __all__ as NAMES  # noqa: N812

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
PROGRAM = """
import forkpoint as fp

env = fp.StreamExecutionEnvironment.get_execution_environment()
numbers = env.from_collection([1, 2, 3, 4], int).uid("numbers")
numbers.key_by(lambda n: n % 2, int).reduce(lambda a, b: a + b).uid("sums").print().uid("out")
env.execute("smoke")
"""


ENDLESS = """
import forkpoint as fp

env = fp.StreamExecutionEnvironment.get_execution_environment()
lines = env.from_source(fp.FileSource.text("in"), fp.WatermarkStrategy.no_watermarks(), "in").uid("in")
lines.key_by(len, int).map_with_state(lambda line, n: (line, (n or 0) + 1), int).uid("count").print().uid("out")
env.execute("endless")
"""


def main() -> None:
    wheel, *packages = build()
    with tempfile.TemporaryDirectory(prefix="forkpoint-build-") as scratch:
        python = install(wheel, Path(scratch) / "venv")
        command = str(python.parent / "forkpoint")
        expect([command, "--version"], scratch, [f"forkpoint {version('forkpoint')}"])
        page = ROOT / "src" / "forkpoint" / "server" / "page"
        packed = "from importlib.resources import files; print(*(f.name for f in (files('forkpoint.server') / 'page').iterdir()))"
        assert set(expect([str(python), "-c", packed], scratch).split()) == {file.name for file in page.iterdir()}
        where = expect([str(python), "-c", "import forkpoint; print(forkpoint.__file__)"], scratch)
        assert where.startswith(scratch), f"the smoke test imports {where}, not the wheel"
        app = Path(scratch) / "app.py"
        app.write_text(PROGRAM)
        expect([command, "run", str(app)], scratch, ["4", "6"])
        check_without_port(command, scratch)
        for package in ("fastapi", "duckdb", "pandas", "rocksdict"):
            missing = f"from forkpoint.extras import require; require({package!r}, 'it')"
            done = run([str(python), "-c", missing], scratch)
            assert 'pip install "forkpoint[' in done.stderr, f"{package} is not reported as missing: {done.stderr}"
        done = run([str(python), "-c", "from forkpoint import MqttSource"], scratch)
        assert 'pip install "forkpoint[mqtt]"' in done.stderr, f"forkpoint-mqtt is not reported as missing: {done.stderr}"
        done = run([command, "import-spark-checkpoint", "checkpoint"], scratch)
        assert 'pip install "forkpoint[spark-checkpoints]"' in done.stderr, (
            f"forkpoint-spark-checkpoints is not reported as missing: {done.stderr}"
        )
        for package in packages:
            pip_install(python, package)
        names = "import forkpoint as fp; from forkpoint import packages; print(*(n for n in packages.__all__ if n in fp.__all__))"
        expect([str(python), "-c", names], scratch, [" ".join(NAMES)])
        expect([command, "--help"], scratch, ["import-spark-checkpoint"])
        expect([command, "import-spark-checkpoint", "--help"], scratch, ["--dry-run"])
    print(f"{wheel.name} installs, and runs a job; {len(packages)} packages install beside it")


def check_without_port(command: str, scratch: str) -> None:
    """Without the extra `server`, a job is asked and commanded through files."""
    (Path(scratch) / "endless.py").write_text(ENDLESS)
    (Path(scratch) / "in").mkdir()
    expect([command, "run", "-d", "--name", "endless", "endless.py"], scratch, ["running"])
    try:
        expect([command, "list"], scratch, ["running"])
        expect([command, "savepoint", "endless"], scratch, ["savepoints/endless/"])
    finally:
        expect([command, "stop", "endless"], scratch, ["savepoints/endless/"])
    done = run([command, "server"], scratch)
    assert 'pip install "forkpoint[server]"' in done.stderr, f"`forkpoint server` does not name its extra: {done.stderr}"


def build() -> list[Path]:
    """The wheels of the core and of the packages beside it, each built from its source distribution."""
    for old in DIST.glob("forkpoint*"):
        old.unlink()
    command = ["uv", "build", "--quiet", "--offline", "--no-build-isolation", "--all-packages", "--out-dir", str(DIST)]
    subprocess.run(command, check=True, cwd=ROOT)
    wheels = sorted(DIST.glob("*.whl"))
    assert len(wheels) == 1 + len(list(ROOT.glob("packages/*"))), wheels
    return sorted(wheels, key=lambda wheel: not wheel.name.startswith("forkpoint-"))


def install(wheel: Path, place: Path) -> Path:
    """Create an environment with the wheel and links to its dependencies; returns its Python."""
    venv.create(place, symlinks=True)
    python = place / "bin" / "python"
    site = Path(sysconfig.get_path("purelib", vars={"base": str(place)}))
    pip_install(python, wheel)
    (installed,) = site.glob("forkpoint-*.dist-info")
    for needed in closure(Distribution.at(installed)):
        # An older pip installs source packages with an egg-info: files listed there may be missing, and it does not list itself.
        tops = {file.parts[0] for file in needed.files or () if file.parts[0] != ".."} | {needed._path.name}
        for top in tops:
            source, link = Path(str(needed.locate_file(top))), site / top
            if top != "__pycache__" and source.exists() and not link.exists():
                link.symlink_to(source)
    return python


def pip_install(python: Path, wheel: Path) -> None:
    """Install a wheel without its dependencies."""
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], check=True)


def closure(top: Distribution) -> list[Distribution]:
    """A distribution's dependencies without its extras, transitively."""
    found: dict[str, Distribution] = {}
    waiting = [(top, "")]
    while waiting:
        of, extra = waiting.pop()
        for requirement in map(Requirement, of.requires or ()):
            if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
                continue
            needed = distribution(requirement.name)
            if requirement.name not in found:
                found[requirement.name] = needed
                waiting += [(needed, each) for each in (*requirement.extras, "")]
    return list(found.values())


def run(command: list[str], directory: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("FORKPOINT_", "PYTHON"))}
    environment = {**kept, "FORKPOINT_ENGINE": "local", "FORKPOINT_STATE_ROOT": f"{directory}/state"}
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)


def expect(command: list[str], directory: str, lines: list[str] | None = None) -> str:
    """Run a command and return its output; it must succeed, and print ``lines`` among others."""
    done = run(command, directory)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    printed = done.stdout.strip()
    missing = [line for line in lines or () if not any(line in each for each in printed.splitlines())]
    assert not missing, f"{command} does not print {missing}:\n{printed}"
    return printed


if __name__ == "__main__":
    main()
