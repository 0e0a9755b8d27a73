"""From a queue through state to a queue: each message once, though the driver is killed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from programs import Program
from servers.rabbitmq_server import RabbitMQ

PROGRAM = Path(__file__).with_name("queue_counting.py")
KEYS = 5


def messages(start: int, stop: int) -> list[str]:
    return [f"{number % KEYS} {number}" for number in range(start, stop)]


def expected(count: int) -> list[str]:
    return sorted(f"{number % KEYS} {number} {number // KEYS + 1}" for number in range(count))


def start(rabbitmq: RabbitMQ, queue: str, to: str, root: Path, *death: str) -> Program:
    return Program(PROGRAM, rabbitmq.port, queue, to, root, "ids", *death)


def once(rabbitmq: RabbitMQ, queue: str) -> list[str]:
    """What a consumer sees that leaves out repetitions by message id."""
    return sorted({str(properties.message_id): body for body, properties in rabbitmq.read(queue)}.values())


def wait_for(rabbitmq: RabbitMQ, queue: str, count: int, driver: Program) -> None:
    while len(once(rabbitmq, queue)) < count:
        driver.runs()
        time.sleep(0.1)


def until_acknowledged(rabbitmq: RabbitMQ, queue: str, driver: Program) -> None:
    """Wait until it has received everything, and a moment for its last acknowledgement, and for what would come twice."""
    while rabbitmq.depth(queue) > 0:
        driver.runs()
        time.sleep(0.05)
    time.sleep(0.5)


@pytest.mark.slow
def test_a_driver_that_is_killed_in_the_middle(rabbitmq: RabbitMQ, tmp_path: Path) -> None:
    queue, to = rabbitmq.create_queue(), rabbitmq.create_queue()
    rabbitmq.publish(queue, messages(0, 1000))
    with start(rabbitmq, queue, to, tmp_path) as driver:
        wait_for(rabbitmq, to, 200, driver)
    rabbitmq.publish(queue, messages(1000, 1500))
    with start(rabbitmq, queue, to, tmp_path) as driver:
        wait_for(rabbitmq, to, 1500, driver)
        until_acknowledged(rabbitmq, queue, driver)
    assert once(rabbitmq, to) == expected(1500)
    assert rabbitmq.values(queue) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "number"),
    [
        ("manifest", 2),
        ("manifest+", 2),
        ("acknowledge", 1),
        ("acknowledge+", 1),
        ("publish", 2),
        ("confirm", 2),
        ("publish+", 2),
    ],
)
def test_a_driver_that_is_killed_at_a_step(rabbitmq: RabbitMQ, tmp_path: Path, step: str, number: int) -> None:
    queue, to = rabbitmq.create_queue(), rabbitmq.create_queue()
    rabbitmq.publish(queue, messages(0, 400))
    with start(rabbitmq, queue, to, tmp_path, step, str(number)) as driver:
        assert driver.wait() == -9, driver.stderr()
    with start(rabbitmq, queue, to, tmp_path) as driver:
        wait_for(rabbitmq, to, 400, driver)
        until_acknowledged(rabbitmq, queue, driver)
    assert once(rabbitmq, to) == expected(400)
    assert rabbitmq.values(queue) == []
