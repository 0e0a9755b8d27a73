"""Lines of tasks: what they are about, in which format, and how many a task may write."""

from __future__ import annotations

import json
import logging
import sys
import threading
from functools import cached_property

import pytest

from forkpoint import logs
from forkpoint.logs import About, JsonLines, TaskLogging
from forkpoint.runtime.tasks.task_log import TaskLog, background_task_log

ABOUT = {"job": "counting", "run": "abc", "epoch": 7, "uid": "counts", "subtask": 2}
log = logging.getLogger("app")


class Streams:
    """What was written until the first look."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    @cached_property
    def _read(self) -> tuple[str, str]:
        return tuple(self._capsys.readouterr())  # type: ignore[return-value]

    @property
    def out(self) -> str:
        return self._read[0]

    @property
    def err(self) -> str:
        return self._read[1]

    @property
    def lines(self) -> list[str]:
        return self.err.splitlines()

    @property
    def objects(self) -> list[dict[str, object]]:
        return [json.loads(each) for each in self.lines]


@pytest.fixture
def streams(capsys: pytest.CaptureFixture[str]) -> Streams:
    return Streams(capsys)


def task_log(**how: object) -> TaskLog:
    return TaskLog(TaskLogging(**{"format": "json", "captured": "all", **how}), lambda: ABOUT)  # type: ignore[arg-type]


def test_prints_and_records_are_lines_with_what_they_are_about(streams: Streams) -> None:
    before = sys.stdout, sys.stderr
    with task_log(returned=True).within():
        print("one", 1)
        print("two\nlines", file=sys.stderr)
        log.warning("%d%%", 50)
        print("not ended", end="")
    assert (sys.stdout, sys.stderr) == before
    print("not of the task")
    found = streams.objects
    assert [(each["logger"], each["level"], each["message"]) for each in found] == [
        ("stdout", "INFO", "one 1"),
        ("stderr", "WARNING", "two"),
        ("stderr", "WARNING", "lines"),
        ("app", "WARNING", "50%"),
        ("stdout", "INFO", "not ended"),
    ]
    assert all(each.items() >= ABOUT.items() for each in found)
    assert streams.out == "not of the task\n"


def test_a_traceback_is_part_of_its_line(streams: Streams) -> None:
    with task_log().within():
        try:
            int("x")
        except ValueError:
            log.exception("no number")
    (line,) = streams.objects
    assert line["message"] == "no number"
    assert str(line["exception"]).endswith("ValueError: invalid literal for int() with base 10: 'x'")


def test_as_text(streams: Streams) -> None:
    with task_log(format="text").within():
        log.warning("red: \x1b[31m")
    (line,) = streams.lines
    assert line.endswith(r"WARNING app: red: \x1b[31m [job counting, run abc, epoch 7, uid counts, subtask 2]")


def test_what_is_too_much_is_counted(streams: Streams) -> None:
    how = task_log(returned=True, max_lines=3)
    with how.within():
        for number in range(100_000):
            print(number)
        log.warning("not displaced")
        log.info("not wanted")
        returned = list(how.returned())
    assert [each["message"] for each in streams.objects[:3]] == ["0", "1", "2"]
    warning, note = streams.objects[3:]
    assert warning["message"] == "not displaced"
    assert str(note["message"]).startswith("99,997 further lines of 'counts' were left out")
    assert note.items() >= ABOUT.items()
    assert returned == streams.lines


def test_short_epochs_share_what_a_task_may_write_in_a_second(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    how, task = TaskLogging("json", "all", max_lines=3), object()
    for _ in range(10):
        with TaskLog(how, lambda: ABOUT, task).within():
            print("one\ntwo")
        now += 0.25
    messages = [str(each["message"]).split(" were")[0] for each in streams.objects]
    left_out = "{} further lines of 'counts'"
    assert messages == [
        "one",
        "two",
        "one",
        left_out.format(1),
        "one",
        "two",
        left_out.format(4),
        "one",
        "one",
        "two",
        left_out.format(5),
        "one",
    ]


def test_long_lines_count_and_are_cut(streams: Streams) -> None:
    with task_log(max_bytes=10_000).within():
        for _ in range(10):
            print("x" * 1_000_000)
    assert len(streams.err) < 15_000
    assert str(streams.objects[0]["message"]) == "x" * 4_000 + "…"
    assert "7 further lines" in streams.lines[-1]


def test_a_line_without_end_takes_no_memory(streams: Streams) -> None:
    with task_log().within():
        for _ in range(1_000):
            print("x" * 1_000, end="")
    (line,) = streams.objects
    assert len(str(line["message"])) == 4_001


def test_records_are_taken_at_the_drivers_levels_until_functions_set_others(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "level", logging.NOTSET)
    how = TaskLogging("json", "all", levels={"app": logging.INFO})
    with TaskLog(how, dict).within():
        log.info("informed")
        log.debug("not wanted")
        log.setLevel(logging.DEBUG)
    with TaskLog(how, dict).within():
        log.debug("wanted")
    log.setLevel(logging.NOTSET)
    assert [each["message"] for each in streams.objects] == ["informed", "wanted"]


def test_prints_of_other_threads_stay_theirs_in_the_drivers_process(streams: Streams) -> None:
    def other() -> None:
        print("of the program")

    with logs.within(About({"job": "counting"})), task_log(captured="prints").within():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        print("of the task")
    assert streams.out == "of the program\n"
    assert [each["message"] for each in streams.objects] == ["of the task"]


def test_tasks_side_by_side_have_lines_of_their_own(streams: Streams) -> None:
    before, both = sys.stdout, threading.Barrier(2)

    def commit(uid: str) -> None:
        with background_task_log(TaskLogging("json", "all"), {**ABOUT, "uid": uid}):
            both.wait()
            print("printed by", uid)
            log.warning("logged by %s", uid)
            both.wait()

    threads = [threading.Thread(target=commit, args=(uid,)) for uid in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sys.stdout is before
    found = sorted((str(each["message"]), each["uid"], each["epoch"]) for each in streams.objects)
    assert found == [(f"{said} by {uid}", uid, 7) for said in ("logged", "printed") for uid in ("a", "b")]


def test_lines_of_helping_threads_are_about_the_only_job() -> None:
    found: list[object] = []

    def write() -> None:
        record = logging.LogRecord("forkpoint", logging.WARNING, "", 0, "said", None, None)
        found.append(json.loads(JsonLines().format(record)).get("job"))

    def in_thread(target: object) -> None:
        thread = threading.Thread(target=target)  # type: ignore[arg-type]
        thread.start()
        thread.join()

    def another_job() -> None:
        with logs.within(About({"job": "b"})):
            in_thread(write)

    with logs.within(About({"job": "a"})):
        in_thread(write)
        in_thread(another_job)
    in_thread(write)
    assert found == ["a", None, None]
