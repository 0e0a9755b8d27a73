"""From a queue through state to a queue: each message once, though the driver is killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from servers.rabbitmq_server import RabbitMQ

PROGRAM = Path(__file__).with_name("queue_counting.py")
PATHS = [str(PROGRAM.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
ENVIRONMENT = os.environ | {"FORKPOINT_ENGINE": "local", "PYTHONPATH": os.pathsep.join(PATHS)}
KEYS = 5


def messages(start: int, stop: int) -> list[str]:
    return [f"{number % KEYS} {number}" for number in range(start, stop)]


def expected(count: int) -> list[str]:
    return sorted(f"{number % KEYS} {number} {number // KEYS + 1}" for number in range(count))


def start(
    rabbitmq: RabbitMQ, queue: str, to: str, root: Path, *death: str, ids: str = "ids"
) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(PROGRAM), str(rabbitmq.port), queue, to, str(root), ids, *death]
    return subprocess.Popen(command, env=ENVIRONMENT, start_new_session=True, stderr=subprocess.PIPE)


def once(rabbitmq: RabbitMQ, queue: str) -> list[str]:
    """What a consumer sees that leaves out repetitions by message id."""
    return sorted({str(properties.message_id): body for body, properties in rabbitmq.read(queue)}.values())


def wait_for(rabbitmq: RabbitMQ, queue: str, count: int, driver: subprocess.Popen[bytes]) -> None:
    while len(once(rabbitmq, queue)) < count:
        assert driver.poll() is None, driver.communicate()[1].decode()[-3000:]
        time.sleep(0.1)


def kill(driver: subprocess.Popen[bytes]) -> None:
    driver.kill()
    driver.communicate()


def test_a_driver_that_is_killed_in_the_middle(rabbitmq: RabbitMQ, tmp_path: Path) -> None:
    queue, to = rabbitmq.create_queue(), rabbitmq.create_queue()
    rabbitmq.publish(queue, messages(0, 1000))
    driver = start(rabbitmq, queue, to, tmp_path)
    wait_for(rabbitmq, to, 200, driver)
    kill(driver)
    rabbitmq.publish(queue, messages(1000, 1500))
    driver = start(rabbitmq, queue, to, tmp_path)
    wait_for(rabbitmq, to, 1500, driver)
    time.sleep(0.5)  # for what would come twice, and the last acknowledgement
    kill(driver)
    assert once(rabbitmq, to) == expected(1500)
    assert rabbitmq.values(queue) == []


@pytest.mark.parametrize(
    "step",
    ["plan+", "manifest", "manifest+", "acknowledge", "acknowledge+", "connect", "publish", "confirm", "publish+"],
)
def test_a_driver_that_is_killed_at_a_step(rabbitmq: RabbitMQ, tmp_path: Path, step: str) -> None:
    queue, to = rabbitmq.create_queue(), rabbitmq.create_queue()
    rabbitmq.publish(queue, messages(0, 400))
    driver = start(rabbitmq, queue, to, tmp_path, step, "1" if step == "connect" else "2")
    assert driver.wait() == -9, driver.communicate()[1].decode()
    driver.communicate()
    driver = start(rabbitmq, queue, to, tmp_path)
    wait_for(rabbitmq, to, 400, driver)
    time.sleep(0.3)
    kill(driver)
    assert once(rabbitmq, to) == expected(400)
    assert rabbitmq.values(queue) == []
