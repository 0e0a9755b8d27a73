"""From MQTT through state to files: nothing is lost though the driver is killed, and with ids nothing comes twice."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from servers.mqtt_server import Mosquitto

PROGRAM = Path(__file__).with_name("mqtt_counting.py")
PATHS = [str(PROGRAM.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
ENVIRONMENT = os.environ | {"FORKPOINT_ENGINE": "local", "PYTHONPATH": os.pathsep.join(PATHS)}
KEYS = 5


def messages(start: int, stop: int) -> list[str]:
    return [f"{number % KEYS} {number}" for number in range(start, stop)]


def expected(count: int) -> list[str]:
    return sorted(f"{number % KEYS} {number} {number // KEYS + 1}" for number in range(count))


class Driver:
    """A program that runs. ``arguments``: after the broker's port and topic."""

    def __init__(self, mosquitto: Mosquitto, topic: str, tmp_path: Path, *arguments: str) -> None:
        self.out = tmp_path / "out"
        command = [sys.executable, str(PROGRAM), str(mosquitto.port), topic, str(tmp_path / "root"), str(self.out)]
        self.process = subprocess.Popen(
            [*command, *arguments], env=ENVIRONMENT, start_new_session=True, stderr=subprocess.PIPE
        )

    def lines(self) -> Iterator[str]:
        for path in sorted(self.out.rglob("*")) if self.out.exists() else ():
            if path.is_file() and not path.name.startswith((".", "_")):
                yield from path.read_text().splitlines()

    def wait_for(self, distinct: int) -> None:
        """Wait until so many different messages have been counted."""
        while len({line.rsplit(" ", 1)[0] for line in self.lines()}) < distinct:
            assert self.process.poll() is None, self.process.communicate()[1].decode()[-3000:]
            time.sleep(0.1)

    def wait_until_subscribed(self) -> None:
        """Subscribed: its first epoch, which announces the split, is committed."""
        while not list(self.out.parent.glob("root/jobs/counting/checkpoints/*2.json")):
            assert self.process.poll() is None, self.process.communicate()[1].decode()[-3000:]
            time.sleep(0.05)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def has_died(self) -> None:
        assert self.process.wait() == -9, self.process.communicate()[1].decode()
        self.process.communicate()


def subscribed(mosquitto: Mosquitto, topic: str, tmp_path: Path, ids: str) -> None:
    """Run the job once, so that the broker keeps messages for its session."""
    driver = Driver(mosquitto, topic, tmp_path, ids)
    driver.wait_until_subscribed()
    driver.kill()


def test_a_driver_that_is_killed_in_the_middle(mosquitto: Mosquitto, tmp_path: Path) -> None:
    topic = mosquitto.topic()
    driver = Driver(mosquitto, topic, tmp_path, "ids")
    driver.wait_until_subscribed()
    mosquitto.publish(topic, messages(0, 1000), ids=True)
    driver.wait_for(200)
    driver.kill()
    mosquitto.publish(topic, messages(1000, 1500), ids=True)
    driver = Driver(mosquitto, topic, tmp_path, "ids")
    driver.wait_for(1500)
    time.sleep(0.5)  # for what would come twice
    driver.kill()
    assert sorted(driver.lines()) == expected(1500)


@pytest.mark.parametrize("ids", ["ids", "none"])
@pytest.mark.parametrize("step", ["plan+", "manifest", "manifest+", "acknowledge", "acknowledge+"])
def test_a_driver_that_is_killed_at_a_step(mosquitto: Mosquitto, tmp_path: Path, step: str, ids: str) -> None:
    topic = mosquitto.topic()
    subscribed(mosquitto, topic, tmp_path, ids)
    mosquitto.publish(topic, messages(0, 300), ids=ids == "ids")
    Driver(mosquitto, topic, tmp_path, ids, step, "2").has_died()
    driver = Driver(mosquitto, topic, tmp_path, ids)
    driver.wait_for(300)
    time.sleep(0.3)
    driver.kill()
    if ids == "ids":
        assert sorted(driver.lines()) == expected(300)
    else:
        assert {line.rsplit(" ", 1)[0] for line in driver.lines()} == set(messages(0, 300))
