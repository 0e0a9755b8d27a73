"""Jobs on a real standalone cluster: executors and workers die, hosts come back, hosts are unfit."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from published import Published
from standalone import QUICK_EXECUTORS, Cluster

pytestmark = pytest.mark.spark

A, B = "127.0.0.2", "127.0.0.3"
ROWS = 8_000
KEYS = 100
EXECUTORS = ["--conf", "spark.executor.memory=512m", "--conf", "spark.executor.cores=1", *QUICK_EXECUTORS]
ALL_REGISTERED = ["--conf", "spark.scheduler.minRegisteredResourcesRatio=1.0"]
BOTH_HOSTS = ["--conf", "spark.cores.max=2", *ALL_REGISTERED]
# An executor that does not answer is given up after seconds instead of minutes.
QUICK_LOSS = [
    "--conf",
    "spark.executor.heartbeatInterval=1s",
    "--conf",
    "spark.network.timeout=6s",
    "--conf",
    "spark.network.timeoutInterval=2s",
]

APP = """
import sys
from pathlib import Path
import forkpoint as fp
from own_module import count

env = fp.StreamExecutionEnvironment.get_execution_environment()
env.enable_checkpointing(50)
env.set_parallelism(4)
lines = env.from_source(fp.FileSource.text(sys.argv[1]), fp.WatermarkStrategy.no_watermarks(), "lines").uid("lines")
numbers = lines.map(int, output_type=int).uid("numbers")
counted = numbers.key_by(lambda n: n % 100, int).map_with_state(count, int, tuple[int, int]).uid("counts")
counted.sink_to(fp.FileSink.csv(sys.argv[2])).uid("out")
env.execute("counting")
"""
MODULE = """
def count(number, state):
    state = (state or 0) + 1
    return (number, state), state
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    started = Cluster(tmp_path)
    try:
        yield started
    finally:
        started.stop()


needs_mounts = pytest.mark.skipif(
    subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode != 0, reason="needs mount namespaces"
)


class Program:
    """The program above, with its module beside it, its input and its output."""

    def __init__(self, home: Path, cluster: Cluster) -> None:
        self.home, self.cluster = home, cluster
        self.python, self.environment = sys.executable, dict(os.environ)
        self.state, self.input, self.output = home / "state", home / "in", home / "out"
        self.state_root, self.app = str(self.state), str(home / "app" / "app.py")
        for directory in (home / "app", self.input, self.output, self.state):
            directory.mkdir()
        self.published = Published(self.output)
        (home / "app" / "app.py").write_text(APP)
        (home / "app" / "own_module.py").write_text(MODULE)

    def write(self, part: int, of: int) -> None:
        self.write_rows(str(part), range(ROWS * part // of, ROWS * (part + 1) // of))

    def write_rows(self, name: str, rows: range) -> None:
        """A file that appears complete, as a source of files needs it."""
        hidden = self.input / f".{name}"
        hidden.write_text("".join(f"{n}\n" for n in rows))
        hidden.rename(self.input / f"{name}.txt")

    def start(self, *options: str) -> subprocess.Popen[str]:
        command = [
            self.python,
            "-m",
            "forkpoint.cli",
            "--state-root",
            self.state_root,
            "run",
            "--master",
            self.cluster.url,
            *EXECUTORS,
            *options,
            self.app,
            "--",
            str(self.input),
            str(self.output),
        ]
        return subprocess.Popen(
            command,
            cwd=self.home,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            env={key: value for key, value in self.environment.items() if key not in ("SPARK_MASTER", "FORKPOINT_ENGINE")},
        )

    def rows(self) -> list[tuple[int, int]]:
        return self.published.rows()

    def wait_for(self, number: int, process: subprocess.Popen[str]) -> None:
        self.published.wait_for(number, process)

    def command(self, *arguments: str) -> str:
        command = [self.python, "-m", "forkpoint.cli", "--state-root", self.state_root, *arguments]
        return subprocess.check_output(command, cwd=self.home, text=True, env=self.environment)

    def stores(self, host: str) -> list[Path]:
        return list(self.cluster.local_directory(host).glob("**/forkpoint-stores/*/*"))


@pytest.fixture
def program(tmp_path: Path, cluster: Cluster) -> Program:
    return Program(tmp_path, cluster)


def test_a_host_dies_and_no_result_is_lost_or_repeated(cluster: Cluster, program: Program) -> None:
    cluster.start_worker(A)
    cluster.start_worker(B)
    program.write(0, 2)
    process = program.start(*BOTH_HOSTS)
    program.wait_for(ROWS // 2, process)
    assert program.stores(A)
    assert program.stores(B)
    cluster.kill_worker(A)
    program.write(1, 2)
    program.wait_for(ROWS, process)
    program.command("cancel", "counting")
    _, err = process.communicate()
    assert process.returncode == 0, err
    assert Counter(program.rows()) == Counter((n, n // KEYS + 1) for n in range(ROWS))


@pytest.mark.slow
def test_executors_and_a_worker_die_and_no_result_is_lost_or_repeated(cluster: Cluster, program: Program) -> None:
    cluster.start_worker(A, cores=2)  # two executors, whose processes share the host's state
    cluster.start_worker(B)
    program.write(0, 4)
    process = program.start("--conf", "spark.cores.max=3", *ALL_REGISTERED)
    program.wait_for(ROWS // 4, process)
    assert program.stores(A)
    assert program.stores(B)

    assert cluster.kill_executors(B)
    program.write(1, 4)
    program.wait_for(ROWS // 2, process)

    cluster.kill_worker(A)
    program.write(2, 4)
    program.wait_for(ROWS * 3 // 4, process)

    shutil.rmtree(cluster.local_directory(A))
    cluster.start_worker(A)  # the host comes back, with an empty disk
    while not cluster.executors(A):
        time.sleep(0.1)
    program.write(3, 4)
    program.wait_for(ROWS, process)
    rows = ROWS
    while not program.stores(A):  # it gets work again
        program.write_rows(str(rows), range(rows, rows + 1))
        rows += 1
        program.wait_for(rows, process)

    program.command("cancel", "counting")
    _, err = process.communicate()
    assert process.returncode == 0, err
    assert Counter(program.rows()) == Counter((n, n // KEYS + 1) for n in range(rows))
    for host in (A, B):
        while program.stores(host):  # the worker removes the application's directories
            time.sleep(0.1)


@pytest.mark.slow
@needs_mounts
def test_a_full_disk_pauses_the_job_until_there_is_space(cluster: Cluster, program: Program) -> None:
    local = cluster.local_directory(A)
    local.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300m", "tmpfs", local], check=True)
    try:
        cluster.start_worker(A)
        program.write(0, 4)
        process = program.start("--conf", "spark.task.maxFailures=1")
        program.wait_for(ROWS // 4, process)
        ballast = local / "ballast"
        subprocess.run(["dd", "if=/dev/zero", f"of={ballast}", "bs=64k"], capture_output=True)
        program.write(1, 4)
        assert process.stderr is not None
        said = next(line for line in process.stderr if "paused because storage has been unavailable since" in line)
        assert A in said
        assert "No space left on device" in said
        ballast.unlink()
        program.wait_for(ROWS // 2, process)
        program.command("cancel", "counting")
        process.communicate()
        assert Counter(program.rows()) == Counter((n, n // KEYS + 1) for n in range(ROWS // 2))
    finally:
        subprocess.run(["umount", "--lazy", local], check=True)


@pytest.mark.slow
def test_a_worker_freezes_and_the_master_is_restarted(cluster: Cluster, program: Program) -> None:
    """What was frozen comes back when others have done its work."""
    cluster.start_worker(A)
    cluster.start_worker(B)
    program.write(0, 4)
    process = program.start(*BOTH_HOSTS, *QUICK_LOSS)
    program.wait_for(ROWS // 4, process)

    frozen = [*cluster.executors(A), cluster.workers[A].pid]
    assert len(frozen) == 2
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    program.write(1, 4)
    program.wait_for(ROWS // 2, process)  # on the other host
    for pid in frozen:
        os.kill(pid, signal.SIGCONT)

    cluster.kill_master()
    program.write(2, 4)
    program.wait_for(ROWS * 3 // 4, process)
    cluster.start_master()
    for host in (A, B):
        cluster.kill_executors(host)  # all of them: the master must know the job to start new ones
    program.write(3, 4)
    program.wait_for(ROWS, process)
    program.command("cancel", "counting")
    process.communicate()
    assert Counter(program.rows()) == Counter((n, n // KEYS + 1) for n in range(ROWS))


def problems(process: subprocess.Popen[str]) -> str:
    _, err = process.communicate()
    assert process.returncode not in (0, None)
    assert "restart" not in err, err
    return err


def hiding(*directories: Path) -> tuple[str, ...]:
    """A command that runs another one for which these directories are empty ones of its own."""
    mounts = " && ".join(f"mount -t tmpfs none {directory}" for directory in directories)
    return ("unshare", "--mount", "sh", "-c", f'{mounts} && exec "$@"', "sh")


@pytest.mark.slow
@needs_mounts
def test_hosts_that_do_not_share_the_directories_are_named_before_anything_runs(cluster: Cluster, program: Program) -> None:
    program.write(0, 4)
    cluster.start_worker(A)
    cluster.start_worker(B, within=hiding(program.state, program.output))
    err = problems(program.start(*BOTH_HOSTS))
    assert "the job cannot run on these hosts" in err
    assert re.search(r"does not see the driver's files in the state root .*state; use an object store", err), err
    assert re.search(r"does not see the driver's files in .*out, where sink 'out' writes", err), err
    assert not list(program.output.iterdir())
    assert json.loads(program.command("--output", "json", "list", "-a"))["jobs"] == []  # it has never run


@pytest.mark.slow
def test_executors_without_forkpoint_are_named(cluster: Cluster, program: Program, tmp_path: Path) -> None:
    program.write(0, 4)
    bare = tmp_path / "bare"
    subprocess.check_call([sys.executable, "-m", "venv", "--without-pip", str(bare)])
    cluster.start_worker(A)
    err = problems(program.start("--conf", f"spark.pyspark.python={bare}/bin/python"))
    assert re.search(rf"on {re.escape(A)}: the executors' Python has no module '(forkpoint|pyarrow)'", err), err


@pytest.mark.slow
def test_a_missing_interpreter_is_named(cluster: Cluster, program: Program) -> None:
    program.write(0, 4)
    cluster.start_worker(A)
    err = problems(program.start("--conf", "spark.pyspark.python=/nowhere/python"))
    assert re.search("no Python at '/nowhere/python'", err), err
