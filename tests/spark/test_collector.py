"""When Spark's Python workers collect garbage."""

import gc
from collections.abc import Iterator

import pytest

from forkpoint.spark import tasks


@pytest.fixture(autouse=True)
def _unfrozen() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_all_is_collected_once_a_minute_or_when_the_process_has_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    collector = tasks._Collector()

    def frozen() -> bool:
        collector.after_task()
        return gc.get_freeze_count() > 0

    assert frozen()
    assert frozen()
    with monkeypatch.context() as later:
        later.setattr("forkpoint.spark.tasks.time.monotonic", lambda: float("inf"))
        assert not frozen()
    collector = tasks._Collector()
    assert frozen()
    grown = tasks._resident_bytes() + 2 * collector.GROWTH
    monkeypatch.setattr(tasks, "_resident_bytes", lambda: grown)
    assert not frozen()
    assert frozen()  # until it has grown by as much again
