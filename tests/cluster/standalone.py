"""A real standalone cluster: a master, and workers with addresses of their own on the loopback interface."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pyspark

from servers.jars import QUICK_JVM

SPARK_HOME = Path(pyspark.__file__).parent
QUICK_EXECUTORS = ["--conf", f"spark.executor.extraJavaOptions={' '.join(QUICK_JVM)}"]


def free_port(host: str = "127.0.0.1") -> int:
    with socket.create_server((host, 0)) as free:
        port: int = free.getsockname()[1]
        return port


def _refused(host: str, port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex((host, port)) != 0


class Cluster:
    """Starts processes below a directory; ``stop`` kills all of them. The master keeps what it knows of workers and
    applications in files, so that it can be restarted."""

    def __init__(self, directory: Path, host: str = "127.0.0.1", *, worker_timeout_s: int = 60) -> None:
        self.directory = directory
        self.host = host
        self._options = f"{' '.join(QUICK_JVM)} -Dspark.worker.timeout={worker_timeout_s}"
        self.port = free_port(host)
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self.start_master()

    @property
    def url(self) -> str:
        return f"spark://{self.host}:{self.port}"

    def start_master(self) -> None:
        kept = self.directory / "master"
        kept.mkdir(exist_ok=True)
        command = ["--host", self.host, "--port", str(self.port), "--webui-port", "0"]
        options = f"{self._options} -Dspark.deploy.recoveryMode=FILESYSTEM -Dspark.deploy.recoveryDirectory={kept}"
        self._master = self._start(
            "master.log",
            "org.apache.spark.deploy.master.Master",
            command,
            environment={"SPARK_DAEMON_JAVA_OPTS": options},
        )
        while _refused(self.host, self.port):
            assert self._master.poll() is None, (self.directory / "master.log").read_text()
            time.sleep(0.1)

    def kill_master(self) -> None:
        os.killpg(self._master.pid, signal.SIGKILL)
        self._master.wait()

    def start_worker(
        self, host: str, *, cores: int = 1, within: tuple[str, ...] = (), environment: Mapping[str, str] | None = None
    ) -> None:
        """``within``: a command that runs the worker's."""
        local = self.directory / host / "local"
        local.mkdir(parents=True, exist_ok=True)
        command = [
            "--host",
            host,
            "--cores",
            str(cores),
            "--memory",
            "1g",
            "--webui-port",
            "0",
            "--work-dir",
            str(self.directory / host / "work"),
            self.url,
        ]
        own = {"SPARK_LOCAL_DIRS": str(local), "SPARK_DAEMON_JAVA_OPTS": self._options, **(environment or {})}
        self.workers[host] = self._start(
            f"{host}.log", "org.apache.spark.deploy.worker.Worker", command, within=within, environment=own
        )

    def local_directory(self, host: str) -> Path:
        return self.directory / host / "local"

    def executors(self, host: str) -> list[int]:
        """The processes of a host's executors: this cluster's, as another test may use the same addresses."""
        work = (self.directory / host / "work").resolve()
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError, ValueError):
                line = (entry / "cmdline").read_bytes().split(b"\0")
                if b"org.apache.spark.executor.CoarseGrainedExecutorBackend" in line and (entry / "cwd").resolve().is_relative_to(
                    work
                ):
                    found.append(int(entry.name))
        return found

    def kill_executors(self, host: str) -> int:
        """Kill a host's executors with all their Python workers; the worker starts new ones."""
        killed = self.executors(host)
        for pid in killed:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(killed)

    def kill_worker(self, host: str) -> None:
        """Kill a worker and its executors at once, as when the machine is lost."""
        worker = self.workers.pop(host)
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()

    def stop(self) -> None:
        for process in (*self.workers.values(), self._master):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _start(
        self,
        log: str,
        name: str,
        arguments: list[str],
        *,
        within: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        with open(self.directory / log, "ab") as output:
            return subprocess.Popen(
                [*within, str(SPARK_HOME / "bin" / "spark-class"), name, *arguments],
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, "SPARK_HOME": str(SPARK_HOME), "SPARK_DAEMON_MEMORY": "256m", **(environment or {})},
            )
