"""What is wrong with real jobs, in the same words at the command line, over REST, and in the server's health."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rest_server import Server

CONFIGURATION = '{"execution.silence-alert": "1 s", "execution.checkpointing.interval": "50 ms", "parallelism.default": 1}'
SOURCE = '''
import time
from typing import Any, NamedTuple

import forkpoint as fp


class Order(NamedTuple):
    branch: str
    at: int


class Orders(fp.Source):
    """Each branch is a split, and has so many orders; None: one for each epoch, forever."""

    def __init__(self, counts):
        self.counts = counts

    bounded = False

    def create_enumerator(self, position):
        return Numbers(self.counts, position or dict.fromkeys(self.counts, 0))

    def create_reader(self):
        return Reader()


class Numbers(fp.SplitEnumerator):
    def __init__(self, counts, position):
        self.counts, self.at, self.begun = counts, dict(position), False

    def plan(self, max_rows, parallelism_hint=2):
        planned = []
        for branch, n in self.at.items():
            count = self.counts[branch]
            size = int(count is None or n < count)
            if size or not self.begun:
                planned.append(fp.SplitRange(branch, 0, n, n + size, size, time.time_ns() // 1_000_000))
            self.at[branch] = n + size
        self.begun = True
        return planned

    @property
    def position(self):
        return dict(self.at)

    finished = False


class Reader(fp.SourceReader):
    def read(self, part):
        yield [Order(part.split, part.info) for _ in range(part.start, part.end)]


env = fp.StreamExecutionEnvironment.get_execution_environment(CONFIGURATION)
'''
STUCK = """
strategy = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda order, at: order.at)
orders = env.from_source(Orders({"lagos": None, "lima": 2, "osaka": 0}), strategy, "orders", Order).uid("orders")
windows = orders.key_by(lambda order: order.branch, str).window(fp.TumblingEventTimeWindows.of(fp.Time.seconds(1)))
windows.reduce(lambda a, b: a).uid("windows").sink_to(fp.DiscardSink()).uid("out")
env.execute("stuck")
"""
SILENT = """
orders = env.from_source(Orders({"lima": 2}), fp.WatermarkStrategy.no_watermarks(), "orders", Order).uid("orders")
bounded = env.from_collection([1, 2], int).uid("bounded")
orders.map(lambda order: order.at, int).uid("times").union(bounded).sink_to(fp.DiscardSink()).uid("out")
env.execute("silent")
"""
LOOPING = """
def fail(number):
    if number == 7:  # only one, since the words name it
        raise ValueError("no price for tea")
    return number

env.set_restart_strategy(fp.RestartStrategy.fixed_delay(100_000, 50))
numbers = env.from_source(fp.CounterSource(per_epoch=10), fp.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
numbers.map(fail, int).uid("prices").sink_to(fp.DiscardSink()).uid("out")
env.execute("looping")
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("shop")
    made = Server(directory)
    started = []
    try:
        for name, program in (("stuck", STUCK), ("silent", SILENT), ("looping", LOOPING)):
            (directory / f"{name}.py").write_text(SOURCE.replace("CONFIGURATION", CONFIGURATION) + program)
            code = 3 if name == "looping" else 0  # its first epoch fails again and again
            started.append(made.forkpoint("run", "-d", f"{name}.py", code=code)["pid"])
        yield made
    finally:
        for pid in started:
            os.kill(pid, 9)
        made.close()


def listed(server: Server, job: str) -> list[dict[str, Any]]:
    """A job's problems at the command line, once there are some."""
    while True:
        (view,) = (each for each in server.forkpoint("list")["jobs"] if each["job"] == job)
        if view["problems"]:
            return list(view["problems"])
        time.sleep(0.2)


def everywhere(server: Server, job: str, kind: str) -> dict[str, Any]:
    """The one problem of a job: of this kind, and with the same words everywhere but for times and counts."""
    problem = listed(server, job)[0]
    assert problem["kind"] == kind
    with server.client() as client:

        def told() -> list[list[dict[str, Any]]]:
            (shown,) = (each for each in client.get("/v1/jobs/overview").json()["jobs"] if each["name"] == job)
            details = client.get(f"/v1/jobs/{job}").json()["overview"]
            healths = [each for each in client.get("/v1/health").json()["problems"] if each["job"] == job]
            return [shown["problems"], details["problems"], healths]

        while not all(found := told()):  # what is known of a job is shared for a second
            time.sleep(0.1)
    text = server.text("list")
    words = [word for word in problem["text"].split() if not word[0].isdigit()]
    for each in itertools.chain(*found):
        assert [word for word in each["text"].split() if not word[0].isdigit()] == words
        assert (each["severity"], each["kind"], each["uid"]) == tuple(problem[name] for name in ("severity", "kind", "uid"))
    (line,) = (line for line in text.splitlines() if line.startswith(f"job '{job}': "))
    assert [word for word in line.split()[2:] if not word[0].isdigit()] == words
    assert [len(each) for each in found] == [1, 1, 1]
    return problem


@pytest.mark.slow
def test_a_split_that_holds_the_watermark_back(shop: Server) -> None:
    problem = everywhere(shop, "stuck", "watermark")
    assert problem["text"] == (
        "the watermark of 'windows' waits for split 'osaka' of 'orders', which has had no element yet; with_idleness(...) "
        "lets it advance"
    )
    assert (problem["severity"], problem["uid"]) == ("warning", "orders")
    with shop.client() as client:
        (source,) = client.get("/v1/jobs/stuck").json()["sources"]
    assert (source["hold"]["split"], source["hold"]["next"], source["hold"]["notable"]) == ("osaka", "lima", True)
    assert [split["split"] for split in source["splits"] if split["holds"]] == ["osaka"]


def test_what_is_measured_of_operators_is_in_a_job_s_details(shop: Server) -> None:
    listed(shop, "stuck")
    with shop.client() as client:
        while (details := client.get("/v1/jobs/stuck").json())["state-size"]["entries"] in (None, 0):
            time.sleep(0.2)
        numbers = client.get("/v1/jobs/looping").json()
    windows = next(each for each in details["vertices"] if each["uid"] == "windows")
    assert windows["metrics"]["accumulated-busy-time"] > 0
    assert windows["metrics"]["read-bytes"] > 0
    assert windows["backlog"] is None
    assert details["state-size"]["bytes"] > 0
    assert numbers["state-size"] == {"entries": 0, "bytes": 0}


def test_a_source_without_data(shop: Server) -> None:
    problem = everywhere(shop, "silent", "no-data")
    assert problem["text"].startswith("no data: source 'orders' has read nothing for ")
    assert (problem["severity"], problem["uid"]) == ("warning", "orders")


@pytest.mark.slow
def test_a_restart_loop(shop: Server) -> None:
    while "restart-loop" not in [each["kind"] for each in listed(shop, "looping")]:
        time.sleep(0.2)
    problem = everywhere(shop, "looping", "restart-loop")
    assert "times in the last 10 min: operator 'prices'" in problem["text"].replace(" or more", "")
    assert "ValueError: no price for tea" in problem["text"]


def test_the_worst_problem_is_the_health_of_all(shop: Server) -> None:
    listed(shop, "looping")
    with shop.client() as client:
        while (health := client.get("/v1/health").json())["status"] != "critical":
            time.sleep(0.2)
    assert health["problems"][0]["job"] == "looping"


def test_a_job_that_is_well_has_no_problems(tmp_path: Path) -> None:
    server = Server(tmp_path)
    try:
        (tmp_path / "ends.py").write_text(
            "import forkpoint as fp\nenv = fp.StreamExecutionEnvironment.get_execution_environment()\n"
            "env.from_collection([1], int).uid('a').sink_to(fp.DiscardSink()).uid('b')\nenv.execute('ends')\n"
        )
        server.text("run", "ends.py")
        with server.client() as client:
            assert client.get("/v1/health").json() == {"status": "ok", "problems": []}
            (job,) = client.get("/v1/jobs/overview").json()["jobs"]
        assert (job["state"], job["problems"]) == ("FINISHED", [])
    finally:
        server.close()
