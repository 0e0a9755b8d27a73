"""What the server knows of drivers: shared by callers, and given while a newer answer is on its way."""

import threading
import time

import pytest

from forkpoint.server import service
from forkpoint.server.service import _Cache


class Driver:
    """Answers with numbers, when it may."""

    def __init__(self) -> None:
        self.asked = 0
        self.free = threading.Event()
        self.free.set()

    def answer(self) -> int:
        self.asked += 1
        number = self.asked
        assert self.free.wait(10)
        return number


@pytest.fixture
def driver():
    driver = Driver()
    yield driver
    driver.free.set()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(service, "FRESH_SECONDS", 0.05)
    monkeypatch.setattr(service, "PATIENCE_SECONDS", 0.2)


def test_an_answer_is_shared_for_a_while(driver, monkeypatch):
    monkeypatch.setattr(service, "FRESH_SECONDS", 60)
    cache = _Cache()
    assert [cache.get("metrics", driver.answer) for _ in range(5)] == [1] * 5
    assert cache.get("journal", driver.answer) == 2


def test_a_driver_that_answers_at_once_is_asked_again(driver):
    cache = _Cache()
    assert cache.get("metrics", driver.answer) == 1
    time.sleep(0.06)
    assert cache.get("metrics", driver.answer) == 2


def test_nobody_waits_for_a_driver_that_is_at_work(driver):
    cache = _Cache()
    assert cache.get("metrics", driver.answer) == 1
    time.sleep(0.06)
    driver.free.clear()
    began = time.monotonic()
    assert [cache.get("metrics", driver.answer) for _ in range(3)] == [1] * 3
    assert time.monotonic() - began < 2
    assert driver.asked == 2, "it is asked once, not by each caller"
    driver.free.set()
    time.sleep(0.02)
    assert cache.get("metrics", driver.answer) >= 2


def test_an_answer_that_is_too_old_is_not_given(driver, monkeypatch):
    monkeypatch.setattr(service, "STALE_SECONDS", 0.1)
    cache = _Cache()
    assert cache.get("metrics", driver.answer) == 1
    time.sleep(0.06)
    driver.free.clear()
    threading.Timer(0.5, driver.free.set).start()
    assert cache.get("metrics", driver.answer) == 2


def test_what_is_forgotten_is_not_given(driver):
    cache = _Cache()
    assert cache.get("metrics", driver.answer) == 1
    cache.clear()
    assert cache.get("metrics", driver.answer) == 2


def test_an_error_is_raised_and_not_kept_for_later(driver):
    def fails() -> int:
        raise OSError("away")

    cache = _Cache()
    with pytest.raises(OSError, match="away"):
        cache.get("metrics", fails)
    time.sleep(0.06)
    assert cache.get("metrics", driver.answer) == 1
    time.sleep(0.06)
    with pytest.raises(OSError, match="away"):
        cache.get("metrics", fails)
