"""A source that finds input ends an idle job's wait; a job that waits for its interval goes on waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import forkpoint as fp
from forkpoint.api.launch import Launch
from forkpoint.driver.run import timing

FOUND: list[int] = []
WAKES: list[Callable[[], None]] = []


class Found(fp.Source[int], fp.SplitEnumerator, fp.SourceReader[int]):
    """The numbers that the test has put into ``FOUND``, up to 3."""

    def __init__(self, position: int = 0) -> None:
        self.next = position

    bounded = True

    def output_type(self) -> fp.TypeInformation[int]:
        return fp.Types.LONG()

    def create_enumerator(self, position: int | None) -> Found:
        return Found(position or 0)

    def create_reader(self) -> Found:
        return self

    def on_input(self, wake: Callable[[], None]) -> None:
        WAKES.append(wake)

    def plan(self, max_rows: int, parallelism_hint: int = 2) -> list[fp.SplitRange]:
        start, self.next = self.next, len(FOUND)
        return [fp.SplitRange("0", 0, start, self.next, self.next - start)] if start < self.next else []

    @property
    def position(self) -> int:
        return self.next

    @property
    def finished(self) -> bool:
        return self.next == 3

    def read(self, range: fp.SplitRange) -> Iterator[list[int]]:
        yield FOUND[range.start : range.end]

    def close(self) -> None: ...


@pytest.mark.parametrize("interval_ms", [1, 300])
def test_input_wakes_an_idle_job_but_does_not_shorten_its_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interval_ms: int
) -> None:
    """Nothing but the source ends an idle wait here: it would last an hour."""
    monkeypatch.setattr(timing, "IDLE_WAIT_MS", 3_600_000)
    FOUND.clear()
    WAKES.clear()
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(str(tmp_path / "state")).set_parallelism(1).enable_checkpointing(interval_ms)
    numbers = env.from_source(Found(), fp.WatermarkStrategy.no_watermarks(), "found").uid("found")
    numbers.map(str, str).sink_to(fp.FileSink.text(tmp_path / "out")).uid("out")
    env.launch = Launch(options={"engine": "local"})
    seen: list[float] = []

    def feed() -> None:
        for number in range(3):
            while len(list((tmp_path / "out").glob("[!.]*"))) < number or not WAKES:
                time.sleep(0.001)
            FOUND.append(number)
            seen.append(time.monotonic())
            WAKES[-1]()
            WAKES[-1]()

    feeding = threading.Thread(target=feed)
    feeding.start()
    env.execute("found")
    feeding.join()
    ended = time.monotonic()
    assert [file.read_text() for file in sorted((tmp_path / "out").glob("[!.]*"))] == ["0\n", "1\n", "2\n"]
    assert ended - seen[0] >= 2 * interval_ms / 1000 - 0.05
