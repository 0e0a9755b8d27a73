"""From Kafka through state to Kafka while the network or the broker's disk fails: `list` says so, and the job goes on by itself,
with each record once and in order.

An outage ends once `list` shows it, and lasts for ``OUTAGE_SECONDS`` at least.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from test_kafka_to_kafka import PROGRAM, expected, produce, received

from forkpoint import operations
from programs import Program
from servers.kafka import Kafka
from servers.network import Network
from servers.process import free_port

OUTAGE_S = float(os.environ.get("OUTAGE_SECONDS", "2"))
DISK_MIB = 48


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    made = Network(free_port())
    yield made
    made.close()


@pytest.fixture(scope="module")
def far_kafka(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A broker that jobs reach through ``network``, and tests directly."""
    started = Kafka(tmp_path_factory.mktemp("kafka") / "broker", network=network)
    yield started
    started.stop()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(place)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"needs the right to mount a small file system: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(ballast: Path) -> None:
    """Take what is left of a disk, also of what is freed meanwhile."""
    with ballast.open("wb") as file:
        while True:
            disk = os.statvfs(ballast)
            if not (room := disk.f_bavail * disk.f_frsize):
                return
            with suppress(OSError):  # others write, too
                os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, room)


class Job:
    """The job, as it runs. ``records`` have been produced for it so far."""

    def __init__(self, kafka: Kafka, servers: str, root: Path) -> None:
        self._kafka = kafka
        self._root = root
        self._from, self._to = kafka.create_topic(partitions=4), kafka.create_topic(partitions=4)
        self.program = Program(PROGRAM, servers, self._from, self._to, root)
        self.records = 0

    def produce(self, more: int) -> None:
        produce(self._kafka, self._from, self.records, self.records + more)
        self.records += more

    def arrived(self) -> int:
        return len(self._kafka.read(self._to))

    def wait_for_all(self) -> None:
        while self.arrived() < self.records:
            self.program.runs()
            time.sleep(0.3)
        assert received(self._kafka, self._to) == expected(self.records)

    def wait_until_shown(self, *words: str) -> None:
        """Until `list` says what is wrong, with one of these words."""
        began, shown = time.monotonic(), None
        while shown is None or time.monotonic() < began + OUTAGE_S:
            self.program.runs()
            (view,) = operations.list_jobs(state_root=str(self._root))
            said = f"{view.doing} {view.reason if view.state == 'restarting' else ''}"
            print(f"after {time.monotonic() - began:.1f} s: {view.state}, {said}")  # pytest shows it if the test fails
            shown = said if any(word in said for word in words) else shown
            time.sleep(0.3)

    def wait_until_well(self) -> None:
        """Until `list` says nothing any more."""
        while True:
            self.program.runs()
            (view,) = operations.list_jobs(state_root=str(self._root))
            if view.state == "running" and view.doing is None:
                return
            time.sleep(0.3)


@contextmanager
def job(kafka: Kafka, port: int, root: Path) -> Iterator[Job]:
    """The job, after it has written some records; in the end all must be there, and it must still run."""
    started = Job(kafka, f"127.0.0.1:{port}", root)
    with started.program:
        started.produce(500)
        started.wait_for_all()
        yield started
        started.produce(300)
        started.wait_for_all()
        started.wait_until_well()


@pytest.mark.slow
def test_a_slow_network(far_kafka: Kafka, network: Network, tmp_path: Path) -> None:
    with job(far_kafka, network.port, tmp_path / "root") as running:
        network.slow(latency_s=0.1, bytes_per_second=50_000)
        running.produce(300)
        running.wait_for_all()
        network.heal()


def test_the_broker_is_away(far_kafka: Kafka, network: Network, tmp_path: Path) -> None:
    with job(far_kafka, network.port, tmp_path / "root") as running:
        running.produce(300)
        far_kafka.kill()
        running.wait_until_shown("Kafka at 127.0.0.1", "sink 'kafka'")
        far_kafka.start()
        running.wait_for_all()


@pytest.mark.slow
def test_packets_vanish_and_come_back(far_kafka: Kafka, network: Network, tmp_path: Path) -> None:
    with job(far_kafka, network.port, tmp_path / "root") as running:
        running.produce(300)
        network.vanish()
        running.produce(300)
        running.wait_until_shown("Kafka at 127.0.0.1", "sink 'kafka'")
        network.heal()


@pytest.mark.slow
def test_packets_vanish_while_an_epoch_reads(far_kafka: Kafka, network: Network, tmp_path: Path) -> None:
    """The ends that were planned are known by then, so the epoch waits, and not the source."""
    with job(far_kafka, network.port, tmp_path / "root") as running:
        network.slow(latency_s=0.05, bytes_per_second=2_000)
        running.produce(600)
        running.wait_until_shown("epoch ")
        network.vanish()
        running.wait_until_shown("waits for source 'events': Kafka at 127.0.0.1")
        network.heal()


@pytest.mark.slow
def test_the_broker_is_away_while_there_is_nothing_to_write(far_kafka: Kafka, network: Network, tmp_path: Path) -> None:
    with job(far_kafka, network.port, tmp_path / "root") as running:
        far_kafka.kill()
        running.wait_until_shown("waits for source 'events': Kafka at 127.0.0.1")
        far_kafka.start()


@pytest.mark.slow  # to a job, it is a broker that goes away
def test_the_brokers_disk_is_full(small_disk: Path, tmp_path: Path) -> None:
    kafka = Kafka(tmp_path / "broker", data=small_disk / "data")
    try:
        with job(kafka, kafka.port, tmp_path / "root") as running:
            ballast = small_disk / "ballast"
            running.produce(6000)  # which takes the job a while
            fill(ballast)
            kafka.wait()  # a broker gives up when its only disk fails
            running.wait_until_shown("Kafka at 127.0.0.1", "sink 'kafka'")
            ballast.unlink()
            kafka.start()
            running.wait_for_all()
    finally:
        kafka.stop()
