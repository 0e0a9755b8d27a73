"""The Redis sink against a real server: each command once and in order, whoever dies, sleeps or runs out of memory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import forkpoint as fp
from applying import sink
from background import InBackground
from forkpoint.checkpoint.manifest import EpochOutput
from forkpoint.connectors.rows import pack
from forkpoint.contract.sink import CommitterContext, SinkContext
from forkpoint.driver.commit import publisher
from forkpoint.errors import ConfigError, ForkpointError, JobFailed, OutputLost, SystemUnavailable
from forkpoint.graph.options import RestoreOptions
from forkpoint_redis import client as redis_client
from forkpoint_redis import committer
from forkpoint_redis.client import RedisClient
from forkpoint_redis.commands import encode
from forkpoint_redis.committer import RedisCommitter
from forkpoint_redis.script import Ledger, Progress
from key_counts import counts_of, job, program, run, run_elements
from servers.process import free_port
from servers.redis_server import Redis

PROGRAM = Path(__file__).with_name("applying.py")
ELEMENTS = 600


def assert_written(server: Redis, prefix: str, elements: int = ELEMENTS) -> None:
    wanted = counts_of(elements)
    lists = {key: server.client.lrange(f"{prefix}:list:{key}", 0, -1) for key in wanted}
    assert lists == {key: list(map(str, counts)) for key, counts in wanted.items()}
    assert server.client.get(f"{prefix}:sum") == str(sum(map(sum, wanted.values())))
    assert server.client.hgetall(f"{prefix}:newest") == {str(key): str(counts[-1]) for key, counts in wanted.items()}


def test_commands_are_applied_once_and_in_order(server: Redis, tmp_path: Path) -> None:
    run(tmp_path, sink(server.url, "usual"), ELEMENTS)
    assert_written(server, "usual")


@pytest.mark.slow
@pytest.mark.parametrize("step", ["connect+", "progress", "progress+", "apply", "apply+"])
def test_a_driver_that_is_killed_at_a_step_of_applying(server: Redis, tmp_path: Path, step: str) -> None:
    prefix = f"killed-{step}"
    for number in (1, 2) if step == "connect+" else (1, 4):
        died = program(PROGRAM, server.url, prefix, tmp_path, ELEMENTS, step, number)
        assert died.returncode == -9, died.stderr
    ended = program(PROGRAM, server.url, prefix, tmp_path, ELEMENTS)
    assert ended.returncode == 0, ended.stderr
    assert_written(server, prefix)


def test_a_fork_and_other_runs_have_entries_of_their_own(server: Redis, tmp_path: Path) -> None:
    original = InBackground(job(tmp_path, sink(server.url, "original"), 3000))
    original.wait_for(lambda s: s.epoch >= 5)
    original.driver.rescale(4).done.result()
    savepoint = original.driver.savepoint().done.result()
    run(tmp_path, sink(server.url, "fork"), 3000, name="fork", restore=RestoreOptions(savepoint))
    assert original.end().outcome == "finished"
    assert_written(server, "original", 3000)
    for counts in (server.client.lrange(f"fork:list:{key}", 0, -1) for key in range(10)):
        assert counts == list(map(str, range(int(counts[0]), 301)))


# -- another one at the same commit


def new_committer(server: Redis, root: Path, replicas: int = 0) -> RedisCommitter:
    context = CommitterContext("sink", root.name, "0", "0123", str(root))
    return RedisCommitter(context, RedisClient(server.url), replicas)


def output(root: Path, epoch: int, values: range, *, key: str | None = None) -> EpochOutput:
    context = SinkContext("sink", root.name, epoch, 0, f"a{epoch}", 1, str(root))
    rows = [encode(("RPUSH", key or root.name, value)) for value in values]
    return EpochOutput(epoch=epoch, committables=[{"group": "0", "rows": context.stage(pack(rows))}])


def written(server: Redis, root: Path) -> list[int]:
    return list(map(int, server.client.lrange(root.name, 0, -1)))


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committer, "CHUNK_COMMANDS", 3)


@pytest.mark.usefixtures("small_chunks")
def test_a_commit_goes_on_after_what_the_ledger_says(server: Redis, tmp_path: Path) -> None:
    first, second = output(tmp_path, 1, range(10)), output(tmp_path, 2, range(10, 20))
    for one in (first, first, second, first, second):
        new_committer(server, tmp_path).commit(one, 2)
    assert written(server, tmp_path) == list(range(20))


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("call", range(6))
def test_an_older_driver_that_wakes_up_changes_nothing(
    server: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    """It sleeps before each of its steps, while another one commits this epoch, and the next."""
    outputs = [output(tmp_path, 1, range(10)), output(tmp_path, 2, range(10, 20))]
    usual, calls = Ledger.apply, 0

    def sleeps(self: Ledger, start: Progress, commands: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call + 1:
            monkeypatch.setattr(Ledger, "apply", usual)
            for each in outputs if call % 2 else outputs[:1]:
                new_committer(server, tmp_path).commit(each, 2)
            monkeypatch.setattr(Ledger, "apply", sleeps)
        return usual(self, start, commands)

    monkeypatch.setattr(Ledger, "apply", sleeps)
    slow = new_committer(server, tmp_path)
    for each in outputs:
        slow.commit(each, 2)
    assert written(server, tmp_path) == list(range(20))
    assert calls > call or call == 5


def test_a_state_root_that_was_put_back_is_refused(server: Redis, tmp_path: Path) -> None:
    new_committer(server, tmp_path).commit(output(tmp_path, 9, range(1)), 9)
    with pytest.raises(JobFailed, match=r"entry '0123/.*/sink/0'.*epoch 9 was committed, but the job's newest is 2\..*copy"):
        new_committer(server, tmp_path).commit(output(tmp_path, 2, range(1)), 2)
    assert written(server, tmp_path) == [0]


def test_writes_that_the_server_has_lost_are_noticed(server: Redis, tmp_path: Path) -> None:
    one = new_committer(server, tmp_path)
    one.commit(output(tmp_path, 1, range(3)), 1)
    server.client.hdel("forkpoint:epochs", one.entry)
    with pytest.raises(OutputLost, match=r"epoch 1, command 3, and is now at epoch 0.*appendfsync"):
        one.commit(output(tmp_path, 2, range(3)), 2)


@pytest.mark.usefixtures("small_chunks")
def test_a_command_that_fails_can_be_corrected(server: Redis, tmp_path: Path) -> None:
    """Those before it in its chunk are not applied again."""
    server.client.set("a text", "x")
    context = SinkContext("sink", tmp_path.name, 1, 0, "a1", 1, str(tmp_path))
    rows = [encode(("RPUSH", "a text" if value == 4 else tmp_path.name, value)) for value in range(8)]
    bad = EpochOutput(epoch=1, committables=[{"group": "0", "rows": context.stage(pack(rows))}])
    for _ in range(2):
        with pytest.raises(JobFailed, match=r"the command 'RPUSH' 'a text' '4' failed: WRONGTYPE .*start the job again"):
            new_committer(server, tmp_path).commit(bad, 1)
    server.client.delete("a text")
    new_committer(server, tmp_path).commit(bad, 1)
    assert written(server, tmp_path) == [0, 1, 2, 3, 5, 6, 7]
    assert server.client.lrange("a text", 0, -1) == ["4"]


# -- a server that fails


def test_a_server_that_is_killed_and_comes_back(own_server: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has its append-only file, with each answer's writes in it."""
    monkeypatch.setattr(publisher, "SLOW_SECONDS", 0.5)
    elements = 15_000
    running = InBackground(job(tmp_path / "root", sink(own_server.url, "k"), elements))
    for epoch in (5, 25):
        running.wait_for(lambda s, epoch=epoch: s.epoch >= epoch)
        own_server.kill()
        status = running.wait_for(lambda s: s.publishing_problem is not None)
        assert status.state == "running", running.result
        assert "sink 'sink'" in status.publishing_problem
        own_server.start()
    assert running.end().outcome == "finished"
    assert running.driver.status().restarts == 0
    assert_written(own_server, "k", elements)


def test_a_server_that_stalls(own_server: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does what it was asked to when it goes on, after the client has given up and asks again."""
    monkeypatch.setattr(redis_client, "ANSWER_SECONDS", 0.3)
    running = InBackground(job(tmp_path / "root", sink(own_server.url, "s"), 5000))
    for epoch in (5, 20):
        running.wait_for(lambda s, epoch=epoch: s.epoch >= epoch)
        own_server.pause()
        status = running.wait_for(lambda s: s.publishing_problem is not None and "Timeout" in s.publishing_problem)
        assert status.state == "running", running.result
        own_server.resume()
    assert running.end().outcome == "finished"
    assert_written(own_server, "s", 5000)


def test_a_server_without_memory(own_server: Redis, tmp_path: Path) -> None:
    running = InBackground(job(tmp_path / "root", sink(own_server.url, "m"), 5000))
    running.wait_for(lambda s: s.epoch >= 5)
    own_server.client.config_set("maxmemory", "1mb")
    status = running.wait_for(lambda s: s.publishing_problem is not None)
    assert status.state == "running", running.result
    assert "maxmemory" in status.publishing_problem
    own_server.client.config_set("maxmemory", "0")
    assert running.end().outcome == "finished"
    assert_written(own_server, "m", 5000)


@pytest.mark.slow
def test_a_replica_that_is_waited_for(own_server: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(committer, "REPLICA_WAIT_MS", 300)
        with pytest.raises(SystemUnavailable, match="0 of 1 replicas have received epoch 1"):
            new_committer(own_server, tmp_path, 1).commit(output(tmp_path, 1, range(3)), 1)
    replica = Redis(tmp_path / "replica", "--replicaof", "127.0.0.1", str(own_server.port), "--repl-diskless-sync-delay", "0")
    try:
        while own_server.client.wait(1, 100) < 1:
            time.sleep(0.01)
        new_committer(own_server, tmp_path, 1).commit(output(tmp_path, 1, range(3)), 1)
        assert written(replica, tmp_path) == [0, 1, 2]
        with pytest.raises(SystemUnavailable, match="read only replica"):
            new_committer(replica, tmp_path).commit(output(tmp_path, 2, range(3)), 2)
    finally:
        replica.stop()


# -- settings that cannot work


@pytest.fixture
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    started = Redis(tmp_path_factory.mktemp("redis") / "server", "--requirepass", "right")
    yield started
    started.stop()


def test_a_wrong_password(guarded: Redis, tmp_path: Path) -> None:
    for url in (guarded.url, guarded.url.replace("//", "//:wrong@")):
        with pytest.raises(ConfigError, match=r"Redis at redis://127.0.0.1:\d+: .*Correct the user name or password") as raised:
            run(tmp_path, sink(url, "p"), 100)
        assert "wrong@" not in str(raised.value)
    run(tmp_path, sink(guarded.url.replace("//", "//:right@"), "p"), 100)
    run(tmp_path / "2", sink(guarded.url, "p2", options={"password": "right"}), 100)


def test_a_database_that_the_server_does_not_have(server: Redis, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError,
        match=r"sink '.*': Redis at redis://.*/99: .*DB index is out of range. Correct the number of the database",
    ):
        run(tmp_path, sink(f"{server.url}/99", "p"), 100)


def test_a_server_that_cannot_be_reached(tmp_path: Path) -> None:
    with pytest.raises(SystemUnavailable, match=r"Redis at redis://127\.0\.0\.1:1 does not work: "):
        run(tmp_path, sink("redis://127.0.0.1:1", "p"), 100)


def test_a_cluster_is_refused(tmp_path: Path) -> None:
    # By default it also listens 10,000 ports above its own, where a client's connection may be.
    cluster = Redis(tmp_path / "server", "--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    try:
        with pytest.raises(ConfigError, match="is a cluster, whose keys cannot be changed in one atomic step"):
            run(tmp_path / "root", sink(cluster.url, "p"), 100)
    finally:
        cluster.stop()


def test_a_server_that_may_evict_the_ledger_is_refused(own_server: Redis, tmp_path: Path) -> None:
    own_server.client.config_set("maxmemory-policy", "allkeys-lru")
    with pytest.raises(ConfigError, match="maxmemory-policy allkeys-lru, and may evict"):
        run(tmp_path, sink(own_server.url, "p"), 100)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("NOSUCH", 1), "the server does not know the command NOSUCH"),
        (("BLPOP", "k", 0), "BLPOP is not possible, because Redis"),
        (("MULTI",), "MULTI is not possible, because Redis does not allow it in scripts"),
        (("FLUSHALL",), "FLUSHALL is not possible: it would delete the sink's ledger"),
        (("SET", "k", None), "an argument of SET is None, a NoneType; make it str, bytes, int or float"),
        (("SET", "k", True), "an argument of SET is True, a bool"),
        (("RPUSH", "k", *range(6000)), "a RPUSH with 6001 arguments; at most 4999"),
        ("SET k v", "the function returned 'SET k v'; it must return a command"),
        ((1, 2), r"\(1, 2\) is not a command"),
    ],
)
def test_commands_that_are_impossible_fail_before_their_epoch_is_committed(
    server: Redis, tmp_path: Path, command: Any, message: str
) -> None:
    to = fp.RedisSink(server.url, lambda e: command)
    with pytest.raises(ForkpointError, match=message):
        run_elements(tmp_path, to, [1], int)
    run_elements(tmp_path, fp.RedisSink(server.url, lambda e: None), [1], int)  # nothing is left to be committed


def test_arguments_that_are_impossible() -> None:
    with pytest.raises(ConfigError, match="Redis URL must specify one of the following schemes"):
        fp.RedisSink("localhost:6379", lambda e: None)
    with pytest.raises(ConfigError, match="unexpected keyword argument 'sokket_timeout'"):
        fp.RedisSink("redis://localhost", lambda e: None, options={"sokket_timeout": 1})
    with pytest.raises(ConfigError, match="replicas is -1"):
        fp.RedisSink("redis://localhost", lambda e: None, replicas=-1)


def test_all_kinds_of_arguments(server: Redis, tmp_path: Path) -> None:
    def commands(element: int) -> Any:
        if element == 0:
            return None
        if element == 1:
            return ["set", "args:text", "ä"]
        return [("SET", b"args:\xff", b"\x00"), ("SET", "args:float", 0.1), ("INCRBYFLOAT", "args:float", 1e-3)]

    run_elements(tmp_path, fp.RedisSink(server.url, commands), [0, 1, 2], int)
    assert server.client.get("args:text") == "ä"
    assert server.client.get("args:float") == "0.101"
    assert server.client.get(b"args:\xff") == "\x00"
