"""From MQTT through state to files: nothing is lost though the driver is killed, and with ids nothing comes twice."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqtt_counting import session
from programs import Program
from servers.mqtt_server import Mosquitto

PROGRAM = Path(__file__).with_name("mqtt_counting.py")
KEYS = 5


def messages(start: int, stop: int) -> list[str]:
    return [f"{number % KEYS} {number}" for number in range(start, stop)]


def expected(count: int) -> list[str]:
    return sorted(f"{number % KEYS} {number} {number // KEYS + 1}" for number in range(count))


class Driver(Program):
    """The program. ``arguments``: after the broker's port and topic."""

    def __init__(self, mosquitto: Mosquitto, topic: str, tmp_path: Path, *arguments: str) -> None:
        self.out = tmp_path / "out"
        super().__init__(PROGRAM, mosquitto.port, topic, tmp_path / "root", self.out, *arguments)

    def lines(self) -> Iterator[str]:
        for path in sorted(self.out.rglob("*")) if self.out.exists() else ():
            if path.is_file() and not path.name.startswith((".", "_")):
                yield from path.read_text().splitlines()

    def wait_for(self, distinct: int) -> None:
        """Wait until so many different messages have been counted, and a moment for what would come twice."""
        while len({line.rsplit(" ", 1)[0] for line in self.lines()}) < distinct:
            self.runs()
            time.sleep(0.1)
        time.sleep(0.3)


def test_a_driver_that_is_killed_in_the_middle(mosquitto: Mosquitto, tmp_path: Path) -> None:
    topic = mosquitto.topic()
    mosquitto.begin_session(session(topic), topic)
    mosquitto.publish(topic, messages(0, 1000), ids=True)
    with Driver(mosquitto, topic, tmp_path, "ids") as driver:
        driver.wait_for(200)
    mosquitto.publish(topic, messages(1000, 1500), ids=True)
    with Driver(mosquitto, topic, tmp_path, "ids") as driver:
        driver.wait_for(1500)
    assert sorted(driver.lines()) == expected(1500)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "number", "ids"),
    [
        ("plan+", 2, "ids"),
        ("manifest+", 2, "ids"),
        ("acknowledge", 1, "ids"),
        ("acknowledge+", 1, "ids"),
        ("acknowledge", 1, "none"),
    ],
)
def test_a_driver_that_is_killed_at_a_step(mosquitto: Mosquitto, tmp_path: Path, step: str, number: int, ids: str) -> None:
    topic = mosquitto.topic()
    mosquitto.begin_session(session(topic), topic)
    mosquitto.publish(topic, messages(0, 300), ids=ids == "ids")
    with Driver(mosquitto, topic, tmp_path, ids, step, str(number)) as driver:
        assert driver.wait() == -9, driver.stderr()
    with Driver(mosquitto, topic, tmp_path, ids) as driver:
        driver.wait_for(300)
    if ids == "ids":
        assert sorted(driver.lines()) == expected(300)
    else:
        assert {line.rsplit(" ", 1)[0] for line in driver.lines()} == set(messages(0, 300))
