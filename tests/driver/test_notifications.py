"""Functions are notified of each complete checkpoint at once, not with the next one, which may never come.

The function here prepares files, and makes them visible once their checkpoint is complete; each test waits for that alone.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import forkpoint as fp
from forkpoint.api.launch import Launch
from patience import PATIENCE_S

ENGINES = [pytest.param("local"), pytest.param("spark", marks=pytest.mark.spark)]


class TwoPhases(fp.KeyedProcessFunction, fp.CheckpointedFunction, fp.CheckpointListener):
    """Prepares a file for each element, and makes those visible that belong to a complete checkpoint."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        self.saved = store.get_list_state(fp.ListStateDescriptor("prepared", str))
        self.prepared = list(self.saved.get())

    def process_element(self, value: str, ctx: Any) -> Any:
        (self.directory / f"{value}.prepared").touch()
        self.prepared.append(value)
        yield value

    def snapshot_state(self, context: Any) -> None:
        self.saved.update(self.prepared)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        for value in self.prepared:
            if (prepared := self.directory / f"{value}.prepared").exists():
                prepared.rename(self.directory / f"{value}.visible")
        self.prepared = []


def visible(directory: Path) -> set[str]:
    return {path.stem for path in directory.glob("*.visible")}


def job(tmp_path: Path, engine: str, *, bounded: bool) -> fp.StreamExecutionEnvironment:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.txt").write_text("a\nb\nc\n")
    (tmp_path / "out").mkdir()
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(str(tmp_path / "root")).set_parallelism(2).enable_checkpointing(50).set_max_epoch_rows(2)
    source = fp.FileSource.for_record_stream_format(fp.StreamFormat.text_line_format(), str(tmp_path / "in"))
    source = source if bounded else source.monitor_continuously(20)
    lines = env.from_source(source.build(), fp.WatermarkStrategy.no_watermarks(), "lines").uid("lines")
    keyed = lines.key_by(lambda line: line, fp.Types.STRING())
    keyed.process(TwoPhases(tmp_path / "out"), fp.Types.STRING()).uid("two-phases").sink_to(fp.DiscardSink()).uid("out")
    env.launch = Launch(options={"engine": engine})
    return env


@pytest.mark.parametrize("engine", ENGINES)
def test_a_job_without_further_input_and_one_that_is_stopped(engine: str, tmp_path: Path) -> None:
    client = job(tmp_path, engine, bounded=False).execute_async("job")
    while visible(tmp_path / "out") != {"a", "b", "c"}:
        time.sleep(0.02)
    (tmp_path / "in" / "2.txt").write_text("d\ne\n")
    client.stop_with_savepoint().result(PATIENCE_S)
    client.get_job_execution_result().result(PATIENCE_S)
    assert not list((tmp_path / "out").glob("*.prepared"))


@pytest.mark.parametrize("engine", ENGINES)
def test_the_last_checkpoint_of_a_job_that_ends(engine: str, tmp_path: Path) -> None:
    job(tmp_path, engine, bounded=True).execute("job")
    assert visible(tmp_path / "out") == {"a", "b", "c"}


def test_the_checkpoint_of_a_drain(tmp_path: Path) -> None:
    client = job(tmp_path, "local", bounded=False).execute_async("job")
    while not visible(tmp_path / "out"):
        time.sleep(0.02)
    (tmp_path / "in" / "2.txt").write_text("d\ne\n")
    client.stop_with_savepoint(advance_to_end_of_event_time=True).result(PATIENCE_S)
    client.get_job_execution_result().result(PATIENCE_S)
    assert not list((tmp_path / "out").glob("*.prepared"))


def test_an_exception_in_the_last_notification_does_not_undo_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(self: Any, checkpoint_id: int) -> None:
        raise OSError("no space")

    monkeypatch.setattr(TwoPhases, "notify_checkpoint_complete", fails)
    env = job(tmp_path, "local", bounded=True).set_max_epoch_rows(100)
    env.execute("job")
    assert "operator 'two-phases': the function raised OSError: no space (notify_checkpoint_complete(" in caplog.text
