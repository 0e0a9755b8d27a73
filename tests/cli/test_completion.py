"""Completion in the real shells, with names below a real state root."""

import json
import os
import pty
import resource
import select
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

import forkpoint as fp
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.cli import main
from forkpoint.cli.commands.jobs import rescale
from forkpoint.testing import Eof, run_local
from programs import run_python
from servers.debian import debian


def job(env, source):
    numbers = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    return numbers.key_by(lambda n: n % 2, int).reduce(lambda a, b: a + b).uid("sums")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A state root with two jobs, one of them with two savepoints, of which one has a label."""
    root = tmp_path_factory.mktemp("root")
    for name in ("motion-alarm", "money"):
        run_local(job, [1, 2, Eof(savepoint=True), 3, Eof(savepoint=True)], state_root=root, job_name=name)
    run_local(job, [1, 2, Eof(savepoint=True), 3, Eof(savepoint=True)], state_root=root, job_name="money")
    newest = sorted((root / "savepoints" / "money").iterdir())[-1].name
    assert CliRunner().invoke(main, ["--state-root", str(root), "label", newest, "before-sale"]).exit_code == 0
    return root


def ids(root, job_name):
    return sorted(path.name for path in (root / "savepoints" / job_name).iterdir())


@pytest.fixture
def shell_env(tmp_path, tmp_path_factory):
    """An environment in which `forkpoint` is the command line of this source tree."""
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    program = bin_dir / "forkpoint"
    program.write_text(f"#!{sys.executable}\nimport sys\nfrom forkpoint.cli import main\nsys.exit(main())\n")
    program.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FORKPOINT_")}
    return kept | {
        "PATH": f"{bin_dir}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "TERM": "dumb",
        "XDG_CACHE_HOME": str(tmp_path_factory.getbasetemp() / "cache"),
    }


class Typed:
    """An interactive shell, into which a user types. Control-T writes the line as it is to a file."""

    def __init__(self, command: list[str], setup: list[str], env: dict[str, str], directory: Path) -> None:
        self.line_file = directory / "line"
        script = subprocess.run(["forkpoint", "completion", command[0]], env=env, capture_output=True, text=True, check=True)
        (directory / "script").write_text(script.stdout)
        self._terminal, inner = pty.openpty()
        self._process = subprocess.Popen(
            command, stdin=inner, stdout=inner, stderr=inner, env=env, cwd=directory, start_new_session=True
        )
        os.close(inner)
        for line in (*setup, "echo READY-$((1+1))"):
            self._send(line + "\n")
        self._read_until("READY-2")

    def _send(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def _read_until(self, text: str) -> None:
        seen = ""
        while text not in seen:
            seen += os.read(self._terminal, 4096).decode(errors="replace")

    def complete(self, typed: str, keys: str = "\t") -> str:
        """The line after these keys."""
        self.line_file.unlink(missing_ok=True)
        self._send(f"{typed}{keys}\x14")
        while not (self.line_file.exists() and self.line_file.read_text().endswith("\n")):
            if select.select([self._terminal], [], [], 0.02)[0]:
                os.read(self._terminal, 4096)
        self._send("\x15")
        return self.line_file.read_text().removesuffix("\n")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._terminal)


@pytest.fixture
def bash(shell_env, tmp_path, root):
    typed = Typed(
        ["bash", "--norc", "--noprofile", "-i"],
        [
            "source ./script",
            "set +o history",
            """bind -x '"\\C-t": printf "%s\\n" "$READLINE_LINE" > line'""",
            "export FORKPOINT_STATE_ROOT=" + shlex.quote(str(root)),
        ],
        shell_env,
        tmp_path,
    )
    yield typed
    typed.close()


ALL = "\x1b*"  # inserts all completions


def test_bash_completes_commands_options_and_their_values(bash):
    assert bash.complete("forkpoint resc") == "forkpoint rescale "
    assert bash.complete("forkpoint state ", ALL) == "forkpoint state get ls query "
    assert bash.complete("forkpoint run --max-p") == "forkpoint run --max-parallelism "
    assert bash.complete("forkpoint import-s") == "forkpoint import-spark-checkpoint "
    assert bash.complete("forkpoint import-spark-checkpoint --dr") == "forkpoint import-spark-checkpoint --dry-run "
    assert bash.complete("forkpoint --output j") == "forkpoint --output json "
    assert bash.complete("forkpoint --output=j") == "forkpoint --output=json "


def test_bash_completes_names_below_the_state_root(bash, root):
    assert bash.complete("forkpoint cancel mot") == "forkpoint cancel motion-alarm "
    assert bash.complete("forkpoint cancel ", ALL) == "forkpoint cancel money motion-alarm "
    assert bash.complete("forkpoint show bef") == "forkpoint show before-sale "
    found = bash.complete("forkpoint show ", ALL).split()[2:]
    assert sorted(found) == sorted([*ids(root, "money"), *ids(root, "motion-alarm"), "before-sale"])
    assert bash.complete("forkpoint run -s l") == "forkpoint run -s latest "
    assert bash.complete("forkpoint run --savepoint=bef") == "forkpoint run --savepoint=before-sale "
    assert bash.complete("forkpoint state get before-sale s") == "forkpoint state get before-sale sums "
    assert bash.complete("forkpoint state get before-sale sums ", ALL).split()[5:] == ["state", "timers"]
    assert bash.complete("forkpoint edit before-sale --remove-uid n") == "forkpoint edit before-sale --remove-uid numbers "
    assert bash.complete("forkpoint edit latest --remove-state s").startswith("forkpoint edit latest --remove-state sums.state")


def test_bash_uses_the_state_root_on_the_line(bash, tmp_path):
    for name in ("other", "another one", "$(touch hacked)", "co:lon"):
        (tmp_path / "other" / JobPaths(name).directory).mkdir(parents=True)
    assert bash.complete("forkpoint --state-root other cancel o") == "forkpoint --state-root other cancel other "
    assert bash.complete("forkpoint --state-root=other cancel o") == "forkpoint --state-root=other cancel other "
    assert bash.complete("forkpoint cancel --state-root other o") == "forkpoint cancel --state-root other other "
    assert bash.complete("forkpoint --state-root other cancel a") == "forkpoint --state-root other cancel another\\ one "
    assert bash.complete("forkpoint --state-root other cancel co:l") == "forkpoint --state-root other cancel co:lon "
    quoted = bash.complete("forkpoint --state-root other cancel ", ALL)
    assert "\\$\\(touch\\ hacked\\)" in quoted
    assert not (tmp_path / "hacked").exists()


def test_bash_completes_files_where_programs_are_given(bash, tmp_path):
    (tmp_path / "alarm.py").write_text("")
    (tmp_path / "savepoint").mkdir()
    assert bash.complete("forkpoint run al") == "forkpoint run alarm.py "
    assert bash.complete("forkpoint show ./sav") == "forkpoint show ./savepoint/"


def test_zsh(shell_env, tmp_path, root):
    debian("zsh", "zsh")
    typed = Typed(
        ["zsh", "-f", "-i"],
        [
            "unsetopt prompt_cr zle_bracketed_paste 2>/dev/null",
            "autoload -Uz compinit && compinit -D",
            "source ./script",
            "line() { print -r -- $BUFFER > line }",
            "zle -N line",
            "bindkey '^T' line",
            f"export FORKPOINT_STATE_ROOT={shlex.quote(str(root))}",
        ],
        shell_env,
        tmp_path,
    )
    try:
        (tmp_path / "alarm.py").write_text("")
        assert typed.complete("forkpoint resc") == "forkpoint rescale "
        assert typed.complete("forkpoint cancel mot") == "forkpoint cancel motion-alarm "
        assert typed.complete("forkpoint show bef") == "forkpoint show before-sale "
        assert typed.complete("forkpoint --output=j") == "forkpoint --output=json "
        assert typed.complete("forkpoint state get before-sale s") == "forkpoint state get before-sale sums "
        assert typed.complete("forkpoint run al") == "forkpoint run alarm.py "
    finally:
        typed.close()


def test_fish(shell_env, tmp_path, root):
    fish = debian("fish", "fish")
    env = shell_env | {"FORKPOINT_STATE_ROOT": str(root)}
    script = subprocess.run(["forkpoint", "completion", "fish"], env=env, capture_output=True, text=True, check=True).stdout
    (tmp_path / "script").write_text(script)

    def complete(line: str) -> dict[str, str]:
        command = [fish, "--no-config", "-c", f"source ./script; complete -C {shlex.quote(line)}"]
        done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=True)
        return dict(each.partition("\t")[::2] for each in done.stdout.splitlines())

    assert complete("forkpoint resc") == {"rescale": rescale.get_short_help_str()}
    assert set(complete("forkpoint cancel mo")) == {"money", "motion-alarm"}
    assert list(complete("forkpoint show bef")) == ["before-sale"]
    assert set(complete("forkpoint state get before-sale sums ")) == {"state", "timers"}
    (tmp_path / "other" / JobPaths("a, b").directory).mkdir(parents=True)
    assert set(complete("forkpoint --state-root other cancel ")) == {"a, b"}


def forked(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """``subprocess.run`` of a script of Python on PATH, which is forked."""
    return run_python([shutil.which(command[0], path=options["env"]["PATH"]), *command[1:]], **options)


def completions(line: str, env: dict[str, str], run: Any = forked) -> subprocess.CompletedProcess[str]:
    return run(
        ["forkpoint"],
        capture_output=True,
        text=True,
        env=env | {"_FORKPOINT_COMPLETE": "bash_complete", "COMP_LINE": line, "COMP_POINT": str(len(line.encode()))},
    )


@pytest.mark.parametrize("line", ["forkpoint cancel ", "forkpoint show ", "forkpoint state get latest ", "forkpoint "])
def test_it_is_silent_if_the_state_root_cannot_be_read(line, shell_env, tmp_path):
    (tmp_path / "file").write_text("")
    damaged = tmp_path / "damaged" / "savepoints" / "job" / "20260101-000000-abcdef"
    damaged.mkdir(parents=True)
    (damaged / "savepoint.json").write_text("{")
    for place in ("file", "missing", "damaged", "s3://127.0.0.1", "nonsense://x"):
        found = completions(line, shell_env | {"FORKPOINT_STATE_ROOT": str(tmp_path / place) if ":" not in place else place})
        assert (found.returncode, found.stderr) == (0, "")


def test_names_with_control_characters_are_left_out(shell_env, tmp_path):
    for name in ("plain", "two\nplain,lines", "\x1b[31mred"):
        (tmp_path / JobPaths(name).directory).mkdir(parents=True)
    found = completions("forkpoint cancel ", shell_env | {"FORKPOINT_STATE_ROOT": str(tmp_path)})
    assert found.stdout.splitlines() == ["plain,plain"]


def test_a_new_version_of_the_commands_is_completed_without_delay_of_the_others(shell_env, tmp_path):
    env = shell_env | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    completions("forkpoint ", env)
    (kept,) = (tmp_path / "cache" / "forkpoint" / "commands").iterdir()
    tree = json.loads(kept.read_text())
    assert set(tree["commands"]) == set(main.list_commands(click.Context(main)))
    kept.write_text("damaged")
    assert "plain,rescale" in completions("forkpoint ", env).stdout
    assert set(json.loads(kept.read_text())["commands"]) == set(main.list_commands(click.Context(main)))


@pytest.mark.slow
def test_a_command_of_a_package_that_is_installed_later_is_completed(shell_env, tmp_path):
    site = tmp_path / "site"

    def install(name: str, points: str) -> None:
        directory = site / f"{name}-0.1.0.dist-info"
        directory.mkdir(parents=True)
        (directory / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n")
        (directory / "entry_points.txt").write_text(points)

    install("forkpoint", "")
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    env = shell_env | {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONPATH": path}
    assert completions("forkpoint hel", env, subprocess.run).stdout.strip() == ""
    (site / "hello.py").write_text('import click\n\n\n@click.command()\ndef hello():\n    """Say hello."""\n')
    install("forkpoint-hello", "[forkpoint.commands]\nhello = hello:hello\n")
    assert completions("forkpoint hel", env, subprocess.run).stdout.splitlines() == ["plain,hello"]


def test_a_completion_over_100_jobs_takes_less_than_300_ms(shell_env, tmp_path):
    for number in range(100):
        paths = JobPaths(f"job-{number}")
        (tmp_path / paths.checkpoints).mkdir(parents=True)
        for epoch in range(20):
            (tmp_path / paths.manifest(epoch)).write_text("{}")
        for savepoint in ("20260101-000000-aaaaaa", "20260102-000000-aaaaaa"):
            place = tmp_path / paths.savepoint(savepoint)
            place.mkdir(parents=True)
            text = json.dumps({"id": savepoint, "job": paths.job, "epoch": 7, "operators": [], "sources": {}})
            (place / "savepoint.json").write_text(text)
    env = shell_env | {"FORKPOINT_STATE_ROOT": str(tmp_path)}
    completions("forkpoint ", env)
    for line, count in (("forkpoint cancel ", 100), ("forkpoint show ", 2)):
        # Of a processor, whatever else the machine does; the best of a few, as a busy processor takes longer for the same.
        assert min(used_by(line, count, env) for _ in range(3)) < 0.3


def used_by(line, count, env):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert len(completions(line, env, subprocess.run).stdout.splitlines()) == count
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize("module", ["forkpoint.cli.completion", "forkpoint.cli.names"])
def test_completing_loads_no_engine_and_no_data_libraries(module):
    program = f"import sys, {module}; print([m for m in ('pyarrow', 'numpy', 'pydantic', 'rich', 'httpx') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
