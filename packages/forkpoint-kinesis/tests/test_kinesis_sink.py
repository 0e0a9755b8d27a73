"""The sinks against a server: nothing is lost, and the order of a key is kept, whatever is refused, and whoever is away."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import forkpoint as fp
from background import InBackground
from example_counts import examples
from forkpoint.api.execution import Job, prepare
from forkpoint.api.launch import Launch
from forkpoint.errors import ConfigError, JobFailed, SystemUnavailable
from forkpoint.graph.options import RestartStrategy
from forkpoint_kinesis import committer
from forkpoint_kinesis.put_queue import Limits, Outgoing, Queue
from servers.kinesis_server import WRONG_KEY, Kinesis

KEYS, ELEMENTS = 5, 60


class Text(fp.SerializationSchema[tuple[int, int]]):
    def serialize(self, element: tuple[int, int]) -> bytes:
        return b"%d\n" % element[1]


def builder(kinesis: Kinesis, stream: str) -> fp.KinesisSinkBuilder:
    built = fp.KinesisSink.builder().set_stream_name(stream).set_serialization_schema(Text())
    built.set_partition_key_generator(lambda element: f"k{element[0]}")
    return built.set_kinesis_client_properties(kinesis.properties)


class Count(fp.KeyedProcessFunction):
    seen = fp.ValueStateDescriptor("seen", int)

    def process_element(self, number: int, ctx: fp.KeyedProcessFunction.Context) -> Any:
        seen = (self.seen.value() or 0) + 1
        self.seen.update(seen)
        yield number % KEYS, seen


def job(root: Path, to: Any, elements: int = ELEMENTS, per_epoch: int = 20, parallelism: int = 2) -> Job:
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(str(root)).set_parallelism(parallelism)
    env.options = replace(env.options, restart=RestartStrategy.none())
    numbers = env.from_source(fp.CounterSource(elements, per_epoch=per_epoch), fp.WatermarkStrategy.no_watermarks(), "numbers")
    counts = numbers.uid("numbers").key_by(lambda n: n % KEYS, int).process(Count(), tuple[int, int]).uid("counts")
    counts.sink_to(to).uid("out")
    env.launch = Launch(options={"engine": "local"})
    return prepare(env, "sending")


def run(root: Path, to: Any, **options: Any) -> Any:
    return job(root, to, **options).begin()()


def received(kinesis: Kinesis, stream: str) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for key, data in kinesis.read(stream):
        found.setdefault(key, []).append(int(data))
    return found


def expected(elements: int = ELEMENTS) -> dict[str, list[int]]:
    return {f"k{key}": list(range(1, len(range(key, elements, KEYS)) + 1)) for key in range(KEYS)}


# -- what is put


def test_records_arrive_in_order_though_some_are_refused(kinesis: Kinesis, tmp_path: Path) -> None:
    stream = kinesis.create_stream(shards=2)
    kinesis.misbehave(stream, fail=8)
    run(tmp_path, builder(kinesis, stream).build())
    assert kinesis.tags(stream)["fail"] == "0"
    assert received(kinesis, stream) == expected()


def test_without_order_a_request_is_full(kinesis: Kinesis, tmp_path: Path) -> None:
    stream = kinesis.create_stream()
    kinesis.misbehave(stream, fail=5)
    run(tmp_path, builder(kinesis, stream).set_ordered(False).set_max_batch_size(7).build())
    assert {key: sorted(values) for key, values in received(kinesis, stream).items()} == expected()


@given(
    keys=st.lists(st.sampled_from("abc"), max_size=30),
    size=st.integers(1, 5),
    data=st.data(),
    ordered=st.booleans(),
)
@examples(60)
def test_a_queue_puts_each_record_once_and_keys_in_order(keys: list[str], size: int, data: Any, ordered: bool) -> None:
    records = [Outgoing(key, b"x") for key in keys]
    queue = Queue(records, keys if ordered else None, Limits(size, 6))
    accepted: list[int] = []
    failures = 20
    while sent := queue.next():
        assert len(sent) <= size
        assert sum(records[index].size for index in sent) <= 6
        assert len({keys[index] for index in sent}) == len(sent) or not ordered
        failed = data.draw(st.sets(st.sampled_from(sent))) if failures else set()
        failures -= bool(failed)
        queue.answered(sent, failed)
        accepted += [index for index in sent if index not in failed]
    assert sorted(accepted) == list(range(len(keys)))
    if ordered:
        for key in set(keys):
            assert [n for n in accepted if keys[n] == key] == [n for n, each in enumerate(keys) if each == key]


def test_keys_of_a_subtask_and_random_ones(kinesis: Kinesis, tmp_path: Path) -> None:
    fixed, random = kinesis.create_stream(shards=2), kinesis.create_stream(shards=2)
    for stream, generator in ((fixed, fp.PartitionKeyGenerator.fixed()), (random, fp.PartitionKeyGenerator.random())):
        run(tmp_path / stream, builder(kinesis, stream).set_partition_key_generator(generator).build())
        found = kinesis.read(stream)
        assert Counter(int(data) for _, data in found) == Counter(n for values in expected().values() for n in values)
        assert len({key for key, _ in found}) == (2 if stream == fixed else ELEMENTS)


def test_ids_are_the_same_whenever_a_record_is_put(kinesis: Kinesis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each commit is done twice, as after a crash: by a process that knows nothing of the first time."""
    stream, plain = kinesis.create_stream(shards=4), kinesis.create_stream(shards=4)
    run(tmp_path / "plain", builder(kinesis, plain).build())
    usual = committer.PutCommitter.commit

    def twice(self: Any, output: Any, newest: int) -> None:
        usual(self, output, newest)
        monkeypatch.setattr(committer, "_last", committer._Last())
        usual(self, output, newest)

    monkeypatch.setattr(committer.PutCommitter, "commit", twice)
    run(tmp_path / "ids", builder(kinesis, stream).set_record_ids(True).build())
    found = kinesis.read(stream)
    assert len(found) == 2 * ELEMENTS
    once = list(dict.fromkeys(found))  # a consumer that leaves out ids that it knows
    assert len(once) == ELEMENTS
    values: dict[str, list[int]] = {}
    for key, data in once:
        values.setdefault(key.split("#")[0], []).append(int(data))
    assert values == expected()
    assert list(values) == list(received(kinesis, plain))  # in the same shards


# -- what cannot be put


def test_what_would_be_refused_fails_before_its_epoch_is_committed(kinesis: Kinesis, tmp_path: Path) -> None:
    stream = kinesis.create_stream()
    for to, message in (
        (
            builder(kinesis, stream).set_max_record_size_in_bytes(3),
            r"a record of 4 bytes, with key 'k0', is larger than 3",
        ),
        (
            builder(kinesis, stream).set_partition_key_generator(lambda _: ""),
            "the partition key '' is empty or has more than 256",
        ),
        (
            builder(kinesis, stream).set_partition_key_generator(lambda _: "k" * 257),
            "or has more than 256 characters; correct",
        ),
        (
            builder(kinesis, "nowhere"),
            r"stream 'nowhere': there is no such stream in region .*create it, or correct set_stream",
        ),
        (
            builder(kinesis, stream).set_kinesis_client_properties({"aws.credentials.provider.basic.accesskeyid": WRONG_KEY}),
            "does not accept the credentials",
        ),
    ):
        with pytest.raises(ConfigError, match=message):
            run(tmp_path, to.build())
    run(tmp_path, builder(kinesis, stream).build())
    assert received(kinesis, stream) == expected()


def test_a_service_that_cannot_be_reached(kinesis: Kinesis, tmp_path: Path) -> None:
    away = builder(kinesis, "s").set_kinesis_client_properties({"aws.endpoint": "http://127.0.0.1:1"}).build()
    with pytest.raises(SystemUnavailable, match="KinesisSink: stream 's' does not work: region 'eu-west-1' at http://127"):
        run(tmp_path, away)


def test_a_refusal_may_fail_the_job(kinesis: Kinesis, tmp_path: Path) -> None:
    stream = kinesis.create_stream()
    kinesis.misbehave(stream, fail=1)
    with pytest.raises(
        JobFailed, match=r"1 of \d+ records were refused \(ProvisionedThroughputExceededException: Rate exceeded\)"
    ):
        run(tmp_path, builder(kinesis, stream).set_fail_on_error(True).build())
    run(tmp_path, builder(kinesis, stream).build())
    assert {key: sorted(set(values)) for key, values in received(kinesis, stream).items()} == expected()


# -- a service that is away for a while


def test_a_group_is_not_repeated_when_another_one_fails(
    kinesis: Kinesis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An epoch is committed again as a whole, and some of its groups have put their records."""
    monkeypatch.setattr(committer, "PATIENCE_S", 0.0)
    stream = kinesis.create_stream()
    kinesis.misbehave(stream, fail=4)
    run(tmp_path, builder(kinesis, stream).build())
    assert received(kinesis, stream) == expected()


def test_a_service_that_is_killed_and_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No record is repeated: the process knows which have been put."""
    monkeypatch.setattr(committer, "PATIENCE_S", 0.3)
    own, elements = Kinesis(tmp_path / "server"), 400
    try:
        stream = own.create_stream(shards=2)
        running = InBackground(job(tmp_path / "root", builder(own, stream).build(), elements))
        running.wait_for(lambda s: s.epoch >= 5)
        own.kill()
        problem = "sink 'out': KinesisSink: stream"
        assert running.wait_for(lambda s: (s.publishing_problem or "").startswith(problem)).state == "running"
        own.start()
        assert running.end().outcome == "finished"
        found = received(own, stream)
        repeated = sum(map(len, found.values())) - elements
        assert repeated <= KEYS  # what was on its way
        assert {key: list(dict.fromkeys(values)) for key, values in found.items()} == expected(elements)
    finally:
        own.stop()


# -- Firehose


def firehose(kinesis: Kinesis, name: str) -> fp.FirehoseSinkBuilder:
    built = fp.FirehoseSink.builder().set_delivery_stream_name(name).set_serialization_schema(Text())
    return built.set_firehose_client_properties(kinesis.properties)


@pytest.mark.parametrize("name", ["accepts-all", "refuses-some"])
def test_all_is_delivered_by_firehose(kinesis: Kinesis, tmp_path: Path, name: str) -> None:
    kinesis.create_delivery_stream(name)
    run(tmp_path, firehose(kinesis, name).set_max_batch_size(15).build())
    delivered = Counter(map(int, kinesis.delivered(name).split()))
    assert delivered == Counter(n for values in expected().values() for n in values)


def test_what_firehose_would_refuse(kinesis: Kinesis, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"delivery stream 'nowhere': there is no such stream .*correct set_delivery_stream_name"
    ):
        run(tmp_path, firehose(kinesis, "nowhere").build())
    with pytest.raises(ConfigError, match="a record of 2 bytes is larger than 1"):
        run(tmp_path, firehose(kinesis, "nowhere").set_max_record_size_in_bytes(1).build())


# -- settings


def test_what_is_missing_or_wrong_is_said(kinesis: Kinesis) -> None:
    streams, firehoses = fp.KinesisSink.builder, fp.FirehoseSink.builder
    for build, message in (
        (lambda: streams().build(), "there is no stream; call set_stream_name"),
        (lambda: streams().set_stream_name("s").build(), "there is no schema"),
        (
            lambda: streams().set_stream_name("s").set_serialization_schema(Text()).build(),
            "there are no partition keys",
        ),
        (lambda: streams().set_partition_key_generator("key"), "'key' does not make partition keys"),  # type: ignore[arg-type]
        (lambda: streams().set_max_batch_size(501), "KinesisSink: max_batch_size is 501; give 1 to 500"),
        (lambda: firehoses().build(), "there is no delivery stream"),
        (lambda: firehoses().set_delivery_stream_name("s").build(), "there is no schema"),
        (lambda: firehoses().set_max_batch_size_in_bytes(5 << 20), "FirehoseSink: max_batch_size_in_bytes is 5242880"),
    ):
        with pytest.raises(ConfigError, match=message):
            build()
    for sink in (builder(kinesis, "s"), firehose(kinesis, "s")):  # PyFlink's settings that have no meaning here
        sink.set_max_in_flight_requests(1).set_max_buffered_requests(1).set_max_time_in_buffer_ms(1).build()


def test_an_answer_that_is_cut_is_no_success(kinesis: Kinesis, tmp_path: Path) -> None:
    """The client takes what it cannot parse for an answer without fields."""
    stream = kinesis.create_stream()
    kinesis.misbehave(stream, cut=2)
    run(tmp_path, builder(kinesis, stream).build())
    assert received(kinesis, stream) == expected()
