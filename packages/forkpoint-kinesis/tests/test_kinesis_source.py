"""The source against a server: what is planned and read, through all that happens to streams and shards."""

from __future__ import annotations

import hashlib
import logging
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import forkpoint as fp
from connectors.connector_reading import batches, elements
from forkpoint.errors import ConfigError, InputLost, RecordParseError, RestoreRefused, StorageError, SystemUnavailable
from forkpoint_kinesis import enumerator, reader, watcher
from forkpoint_kinesis.aggregated import parts
from forkpoint_kinesis.source import FlinkKinesisConsumer
from kinesis_jobs import FAST, Loop, Text, builder, read
from servers.kinesis_server import WRONG_KEY, Kinesis

S0, S1 = "shardId-000000000000", "shardId-000000000001"
HOUR_MS = 3_600_000


def texts(letter: str, *numbers: int) -> list[str]:
    return [f"{letter}{n}" for n in range(*numbers)]


def test_all_records_of_all_shards_in_order(kinesis: Kinesis) -> None:
    stream = kinesis.create_stream(shards=2)
    kinesis.put_to(stream, S0, texts("a", 10))
    kinesis.put_to(stream, S1, texts("b", 5))
    assert read(builder(kinesis, stream).build(), 15) == {S0: texts("a", 10), S1: texts("b", 5)}


def test_a_position_is_where_to_go_on(kinesis: Kinesis) -> None:
    stream = kinesis.create_stream(shards=2)
    kinesis.put_to(stream, S0, texts("a", 10))
    kinesis.put_to(stream, S1, texts("b", 10))
    source = builder(kinesis, stream).build()
    with Loop(source) as loop:
        loop.until_read(7, max_rows=4)
        position, before = loop.position, loop.values
    rest = read(source, 20 - len(loop.read), position)
    assert before.get(S0, []) + rest.get(S0, []) == texts("a", 10)
    assert before.get(S1, []) + rest.get(S1, []) == texts("b", 10)


def test_a_range_has_the_same_elements_whenever_it_is_read(kinesis: Kinesis) -> None:
    stream = kinesis.create_stream()
    kinesis.put_to(stream, S0, texts("a", 10))
    source = builder(kinesis, stream).set_property("flink.shard.getrecords.maxrecordcount", "3").build()
    with Loop(source) as loop:
        loop.until(lambda: loop.enumerator._watcher is not None and bool(loop.read))  # type: ignore[attr-defined]
        time.sleep(0.2)  # more than one request's records are known
        planned, seen = loop.step()[0], len(loop.read)
    kinesis.put_to(stream, S0, texts("late", 5))
    again = [elements(source, planned) for _ in range(3)]
    assert again == [texts("a", 10)[seen - len(again[0]) : seen]] * 3
    assert len(again[0]) > 3


def test_a_stream_by_its_arn(kinesis: Kinesis) -> None:
    stream = kinesis.create_stream()
    kinesis.put_to(stream, S0, texts("a", 3))
    arn = kinesis.kinesis.describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"]["StreamARN"]
    assert read(builder(kinesis, stream).set_stream_arn(arn).build(), 3) == {S0: texts("a", 3)}


# -- where to start


def test_latest_starts_with_what_arrives_after_the_first_look_even_if_the_job_is_down_meanwhile(
    kinesis: Kinesis,
) -> None:
    stream = kinesis.create_stream()
    kinesis.put_to(stream, S0, texts("old", 3))
    source = builder(kinesis, stream).set_initial_position("LATEST").build()
    with Loop(source) as loop:
        loop.until(lambda: bool(loop.epochs))  # an empty range announces the shard, so that the position is committed
        position = loop.position
    kinesis.put_to(stream, S0, texts("new", 3))
    assert read(source, 3, position) == {S0: texts("new", 3)}


def test_a_timestamp_is_exact(kinesis: Kinesis) -> None:
    stream = kinesis.create_stream()
    kinesis.put_to(stream, S0, texts("old", 3))
    time.sleep(0.01)
    start = datetime.now(UTC)
    kinesis.put_to(stream, S0, texts("new", 3))
    for source in (
        builder(kinesis, stream).set_initial_position("AT_TIMESTAMP", start).build(),
        FlinkKinesisConsumer(
            stream,
            Text(),
            {
                **kinesis.properties,
                **FAST,
                "flink.stream.initpos": "AT_TIMESTAMP",
                "flink.stream.initpos.timestamp": str(start.timestamp()),
            },
        ),
    ):
        assert read(source, 3) == {S0: texts("new", 3)}


def test_a_time_in_the_future(kinesis: Kinesis) -> None:
    stream = kinesis.create_stream()
    source = builder(kinesis, stream).set_initial_position("AT_TIMESTAMP", 9_999_999_999_000).build()
    with (
        Loop(source) as loop,
        pytest.raises(ConfigError, match="initial position 2286-11-20 17:46 UTC is in the future"),
    ):
        loop.until_it_fails()


# -- resharding


def test_children_begin_after_the_end_of_their_parents(kinesis: Kinesis) -> None:
    """Through a split, and a merge of one child with the other old shard; in small epochs."""
    stream = kinesis.create_stream(shards=2)
    source = builder(kinesis, stream).build()
    kinesis.put_to(stream, S0, texts("a", 10))
    kinesis.put_to(stream, S1, texts("b", 10))
    left, right = kinesis.split(stream, S0)
    kinesis.put_to(stream, left, texts("l", 5))
    kinesis.put_to(stream, right, texts("r", 5))
    merged = kinesis.merge(stream, right, S1)
    kinesis.put_to(stream, merged, texts("m", 5))
    with Loop(source) as loop:
        loop.until_read(35, max_rows=4)
        assert {split: values for split, values in loop.values.items() if values} == {
            S0: texts("a", 10),
            S1: texts("b", 10),
            left: texts("l", 5),
            right: texts("r", 5),
            merged: texts("m", 5),
        }
        first = {s: min(n for n, epoch in enumerate(loop.epochs) if epoch.get(s)) for s in loop.values}
        last = {s: max(n for n, epoch in enumerate(loop.epochs) if epoch.get(s)) for s in loop.values}
        assert first[left] > last[S0]
        assert first[right] > last[S0]
        assert first[merged] > max(last[right], last[S1])
        assert set(loop.enumerator.finished_splits) == {S0, S1, right}


def test_a_child_counts_from_the_epoch_in_which_its_parent_ends(kinesis: Kinesis) -> None:
    """Else watermarks would run ahead of it."""
    stream = kinesis.create_stream()
    kinesis.put_to(stream, S0, texts("a", 5))
    with Loop(builder(kinesis, stream).build()) as loop:
        loop.until_read(5)
        children = kinesis.split(stream, S0)
        while not loop.enumerator.finished_splits:
            announced = [r.split for r in loop.step()]
        assert announced == list(children)
        kinesis.put_to(stream, children[1], texts("c", 2))
        loop.until_read(7)
        assert loop.values[children[1]] == texts("c", 2)


def test_shards_of_a_reshard_while_the_job_was_down_are_read_from_their_start(kinesis: Kinesis) -> None:
    stream = kinesis.create_stream()
    kinesis.put_to(stream, S0, texts("a", 5))
    source = builder(kinesis, stream).set_initial_position("LATEST").build()
    with Loop(source) as loop:
        loop.until(lambda: bool(loop.epochs))
        position = loop.position
    kinesis.put_to(stream, S0, texts("b", 3))
    left, _ = kinesis.split(stream, S0)
    kinesis.put_to(stream, left, texts("c", 3))
    assert read(source, 6, position) == {S0: texts("b", 3), left: texts("c", 3)}


def test_a_shard_that_was_read_and_expired_stays_finished(kinesis: Kinesis) -> None:
    stream = kinesis.create_stream()
    kinesis.put_to(stream, S0, texts("a", 3))
    left, right = kinesis.split(stream, S0)
    source = builder(kinesis, stream).build()
    with Loop(source) as loop:
        loop.until(lambda: S0 in loop.enumerator.finished_splits)
        kinesis.misbehave(stream, unlist=S0)
        loop.until(lambda: loop.position["shards"][S0] == {"ended": True})
        kinesis.put_to(stream, right, texts("b", 3))
        loop.until_read(6)
        position = loop.position
    kinesis.put_to(stream, left, texts("c", 3))
    with Loop(source, position) as loop:
        loop.until_read(3)
        assert set(loop.enumerator.finished_splits) == {S0}


# -- pauses and stops


def test_paused_shards_are_left_out_until_they_go_on(kinesis: Kinesis) -> None:
    stream = kinesis.create_stream(shards=2)
    with Loop(builder(kinesis, stream).build()) as loop:
        loop.until(lambda: bool(loop.epochs))
        assert loop.enumerator.pause_splits([S0])
        kinesis.put_to(stream, S0, texts("a", 3))
        kinesis.put_to(stream, S1, texts("b", 3))
        loop.until_read(3)
        time.sleep(0.1)
        loop.step()
        assert loop.read == texts("b", 3)
        loop.enumerator.pause_splits([])
        loop.until_read(6)


def test_it_stops_at_a_position(kinesis: Kinesis) -> None:
    stream = kinesis.create_stream(shards=2)
    source = builder(kinesis, stream).build()
    kinesis.put_to(stream, S0, texts("a", 5))
    with Loop(source) as loop:
        loop.until_read(5)
        early = loop.position
        left, right = kinesis.split(stream, S0)
        kinesis.put_to(stream, S1, texts("b", 5))
        kinesis.put_to(stream, left, texts("l", 3))
        loop.until_read(13)
        stop = loop.position
        kinesis.put_to(stream, left, texts("later", 3))
        kinesis.put_to(stream, right, texts("later", 3))
        loop.until_read(19)
        late = loop.position
    for start in (None, early):
        with Loop(source, start, until=stop) as loop:
            loop.until(lambda loop=loop: loop.enumerator.at_stop, max_rows=2)  # type: ignore[misc]
            time.sleep(0.1)
            assert loop.step() == []
            found = {split: values for split, values in loop.values.items() if values}
        assert found == {S1: texts("b", 5), left: texts("l", 3)} | ({} if start else {S0: texts("a", 5)})
    with pytest.raises(ConfigError, match="beyond the stop at"):
        Loop(source, late, until=stop)


def test_a_position_of_another_version_is_refused(kinesis: Kinesis) -> None:
    with pytest.raises(RestoreRefused, match="reads version 1"):
        builder(kinesis, "s").build().create_enumerator({"version": 2})


# -- limits of the service


def test_too_many_requests_and_expired_iterators(kinesis: Kinesis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forkpoint_kinesis.watcher.RETRY_S", 0.02)
    stream = kinesis.create_stream()
    kinesis.put_to(stream, S0, texts("a", 10))
    source = builder(kinesis, stream).set_property("flink.shard.getrecords.maxrecordcount", "4").build()
    with Loop(source) as loop:
        for n in range(1, 4):
            kinesis.misbehave(stream, throttle=2, expire=2)
            loop.until_read(10 * n, max_rows=7)
            kinesis.put_to(stream, S0, texts("a", 10 * n, 10 * n + 10))
        loop.until_read(40)
        assert loop.read == texts("a", 40)
        kinesis.misbehave(stream, throttle=3, expire=2)  # beside the driver, a task
        loop.until(lambda: kinesis.tags(stream).get("throttle") == "0" and kinesis.tags(stream).get("expire") == "0")
        kinesis.put_to(stream, S0, texts("a", 40, 50))
        loop.until_read(50)
        assert loop.read == texts("a", 50)


def test_no_more_is_read_ahead_than_a_limit(kinesis: Kinesis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "AHEAD", 10)
    monkeypatch.setattr(watcher, "LEAST_AHEAD", 10)
    stream = kinesis.create_stream()
    kinesis.put_to(stream, S0, texts("a", 50))
    source = builder(kinesis, stream).set_property("flink.shard.getrecords.maxrecordcount", "4").build()
    with Loop(source) as loop:
        loop.until(lambda: bool(loop.epochs))
        time.sleep(0.3)  # enough for all of them
        loop.until_read(50)
        assert loop.read == texts("a", 50)
        assert all(len(epoch.get(S0, ())) <= 10 + 4 for epoch in loop.epochs)


# -- retention


def test_positions_are_refreshed_while_nothing_arrives(kinesis: Kinesis, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a job that was idle for long would not know, at its next start, that it has missed nothing."""
    monkeypatch.setattr(enumerator, "REFRESH_S", 0.1)
    stream = kinesis.create_stream()
    with Loop(builder(kinesis, stream).build()) as loop:
        loop.until(lambda: bool(loop.epochs))
        before = time.time_ns() // 1_000_000
        loop.until(lambda: len(loop.epochs) > 3)
        assert loop.position["shards"][S0]["seen_ms"] >= before
        assert loop.read == []


def aged(position: Any, hours: int) -> Any:
    """A position of a job that has been down."""
    shards = {id: {**p, "seen_ms": p["seen_ms"] - hours * HOUR_MS} for id, p in position["shards"].items()}
    return {**position, "shards": shards}


def test_a_job_that_was_down_for_longer_than_records_are_kept(kinesis: Kinesis, caplog: pytest.LogCaptureFixture) -> None:
    stream = kinesis.create_stream()
    source = builder(kinesis, stream).build()
    kinesis.put_to(stream, S0, texts("a", 3))
    with Loop(source) as loop:
        loop.until_read(3)
        loop.until(lambda: "seen_ms" in loop.position["shards"][S0])
        position = loop.position
    kinesis.put_to(stream, S0, texts("b", 3))
    assert read(source, 3, aged(position, 100)) == {S0: texts("b", 3)}  # the last record that was read is still there
    first = next(iter(kinesis.sequence_numbers(stream, S0)))
    kinesis.misbehave(stream, **{f"trim-{S0}": kinesis.sequence_numbers(stream, S0)[2]})
    with Loop(source, aged(position, 20)) as loop:  # within the retention period, nothing can have been missed
        loop.until_read(3)
    with Loop(source, aged(position, 100)) as loop, pytest.raises(StorageError) as failed:
        loop.until_it_fails()
    assert first in position["shards"][S0]["after"] or position["shards"][S0]["after"] > first
    assert f"stream '{stream}', {S0}: the job has read the records that arrived until 20" in str(failed.value)
    assert "keeps records for 24 hours" in str(failed.value)
    assert "Raise the stream's retention period" in str(failed.value)
    skipping = builder(kinesis, stream).set_on_expired("skip").build()
    with caplog.at_level(logging.WARNING, "forkpoint.kinesis"):
        assert read(skipping, 3, aged(position, 100)) == {S0: texts("b", 3)}
    assert "The job continues with the remaining records" in caplog.text


def test_a_shard_that_expired_before_it_was_read(kinesis: Kinesis) -> None:
    stream = kinesis.create_stream()
    source = builder(kinesis, stream).build()
    with Loop(source) as loop:
        loop.until(lambda: bool(loop.epochs))
        position = loop.position
    kinesis.put_to(stream, S0, texts("a", 3))
    left, _ = kinesis.split(stream, S0)
    kinesis.put_to(stream, left, texts("b", 3))
    kinesis.misbehave(stream, unlist=S0)
    with (
        Loop(source, position) as loop,
        pytest.raises(StorageError, match=rf"{S0}: the shard no longer exists: its records expired"),
    ):
        loop.until_it_fails()
    assert read(builder(kinesis, stream).set_on_expired("skip").build(), 3, position) == {left: texts("b", 3)}


def test_records_that_expire_between_plan_and_task(kinesis: Kinesis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "RETRY_S", 0.01)
    stream = kinesis.create_stream()
    kinesis.put_to(stream, S0, texts("a", 6))
    source = builder(kinesis, stream).build()
    with Loop(source) as loop:
        while not (planned := [r for r in loop.enumerator.plan(100) if r.rows]):
            time.sleep(0.01)
    numbers = kinesis.sequence_numbers(stream, S0)
    for trim, left in ((numbers[1], f"begins at {numbers[2]}"), ("all", "lacks 6 of them")):
        kinesis.misbehave(stream, **{f"trim-{S0}": trim})
        with pytest.raises(StorageError, match=rf"the 6 records from .* are incomplete: the range {left}.*retention"):
            elements(source, planned[0])


def test_a_stream_that_was_created_anew(kinesis: Kinesis) -> None:
    stream = kinesis.create_stream()
    kinesis.put_to(stream, S0, texts("a", 3))
    source = builder(kinesis, stream).build()
    with Loop(source) as loop:
        loop.until_read(3)
        position = loop.position
    kinesis.kinesis.delete_stream(StreamName=stream)
    time.sleep(1)  # times are in seconds
    kinesis.create_stream(stream)
    with (
        Loop(source, position) as loop,
        pytest.raises(InputLost, match=r"was created anew.*give the source a new uid"),
    ):
        loop.until_it_fails()


def test_a_stream_that_is_created_anew_while_the_job_runs(kinesis: Kinesis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forkpoint_kinesis.watcher.CHECK_S", 0.0)
    stream = kinesis.create_stream()
    kinesis.put_to(stream, S0, texts("a", 3))
    source = builder(kinesis, stream).build()
    source = replace(source, watch=replace(source.watch, discovery_s=0.05))
    with Loop(source) as loop:
        loop.until_read(3)
        kinesis.kinesis.delete_stream(StreamName=stream)
        time.sleep(1)  # times are in seconds
        kinesis.create_stream(stream)
        with pytest.raises((InputLost, ConfigError), match=r"was created anew|create it"):
            loop.until_it_fails()
    with Loop(source, loop.position) as again, pytest.raises(InputLost, match="was created anew"):
        again.until_it_fails()


# -- records


def test_bad_records_fail_or_are_skipped(kinesis: Kinesis, caplog: pytest.LogCaptureFixture) -> None:
    stream = kinesis.create_stream()
    kinesis.put_to(stream, S0, ["one", "bad", "two"])
    with Loop(builder(kinesis, stream).build()) as loop, pytest.raises(RecordParseError) as failed:
        loop.until_it_fails()
    number = kinesis.sequence_numbers(stream, S0)[1]
    assert f"{S0}, sequence number {number}: cannot read the record: ValueError: bad text" in str(failed.value)
    with caplog.at_level(logging.WARNING, "forkpoint.kinesis"):
        assert read(builder(kinesis, stream).set_on_parse_error("skip").build(), 2) == {S0: ["one", "two"]}
    assert "bad text; skipped" in caplog.text


def test_dead_letters_and_times_of_arrival(kinesis: Kinesis) -> None:
    stream = kinesis.create_stream()
    before = time.time() * 1000
    kinesis.put_to(stream, S0, ["one", "bad", "two"])
    source = builder(kinesis, stream).set_on_parse_error(fp.OutputTag("dead", fp.DeadLetter)).build()
    found: list[fp.SourceBatch[Any]] = []
    with Loop(source) as loop:
        while sum(len(batch.elements) for batch in found) < 2:
            found += [batch for each in loop.enumerator.plan(1000) for batch in batches(source, each)]
            time.sleep(0.002)
    (side,) = [side for batch in found for side in batch.sides]
    (letter,) = side.elements
    place = {
        "stream": stream,
        "shard": S0,
        "sequence_number": kinesis.sequence_numbers(stream, S0)[1],
        "sub_sequence_number": "0",
    }
    assert (letter.source, letter.place, letter.data) == ("uid", place, b"bad")
    times = [ms for of in (*found, side) if of.timestamps is not None for ms in of.timestamps.tolist()]
    assert len(times) == 3
    assert all(before - 2000 < ms < time.time() * 1000 + 2000 for ms in times)


class Everything(fp.KinesisDeserializationSchema[tuple[str, str, int, bytes]]):
    def deserialize(self, record: fp.KinesisRecord) -> tuple[str, str, int, bytes]:
        assert record.arrival_ms > 1_700_000_000_000
        return record.stream, record.partition_key, record.sub_sequence_number, record.data


def varint(number: int) -> bytes:
    return bytes([number & 0x7F | 0x80]) + varint(number >> 7) if number > 0x7F else bytes([number])


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def aggregated(records: list[tuple[str, bytes]], hash_keys: dict[int, int] | None = None) -> bytes:
    """As the Kinesis Producer Library does it. ``hash_keys``: of records, by index."""
    keys, hashes = list(dict.fromkeys(key for key, _ in records)), list((hash_keys or {}).items())
    message = b"".join(field(1, key.encode()) for key in keys) + b"".join(field(2, str(h).encode()) for _, h in hashes)
    for n, (key, data) in enumerate(records):
        hash_key = [field(2, i) for i, (index, _) in enumerate(hashes) if index == n]
        message += field(3, b"".join([field(1, keys.index(key)), *hash_key, field(3, data)]))
    return b"\xf3\x89\x9a\xc2" + message + hashlib.md5(message).digest()


def test_records_that_a_producer_has_put_together(kinesis: Kinesis) -> None:
    stream = kinesis.create_stream(shards=2)
    lower, upper = (int(s["HashKeyRange"]["StartingHashKey"]) for s in kinesis.shards(stream))
    long = b"x" * 300
    together = aggregated([("a", b"1"), ("b", long), ("a", b"3"), ("c", b"other")], {0: lower, 1: lower, 2: lower, 3: upper})
    kinesis.kinesis.put_record(StreamName=stream, Data=together, PartitionKey="p", ExplicitHashKey=str(lower))
    kinesis.kinesis.put_record(StreamName=stream, Data=b"single", PartitionKey="q", ExplicitHashKey=str(lower))
    found = read(builder(kinesis, stream).set_deserialization_schema(Everything()).build(), 4)
    # The last belongs to the other shard, so that the producer sends it again there.
    assert found == {S0: [(stream, "a", 0, b"1"), (stream, "b", 1, long), (stream, "a", 2, b"3"), (stream, "q", 0, b"single")]}


def test_data_that_only_looks_put_together() -> None:
    good = aggregated([("a", b"1")])
    found = parts(good)
    assert found is not None
    assert [(p.partition_key, p.data) for p in found] == [("a", b"1")]
    assert found[0].hash_key == int(hashlib.md5(b"a").hexdigest(), 16)
    nonsense = b"\x0b\xff\xff"
    for data in (b"", good[:10], good[:-1] + b"x", good[:4] + nonsense + hashlib.md5(nonsense).digest()):
        assert parts(data) is None


# -- outages and settings


def test_it_waits_for_a_service_that_is_away(tmp_path: Path) -> None:
    own = Kinesis(tmp_path / "server")
    try:
        stream = own.create_stream()
        own.put_to(stream, S0, texts("a", 5))
        with Loop(builder(own, stream).build()) as loop:
            loop.until_read(5)
            own.kill()
            time.sleep(0.3)
            assert loop.step() == []
            own.start()
            own.put_to(stream, S0, texts("a", 5, 10))
            loop.until_read(10)
            own.pause()
            time.sleep(0.3)
            assert loop.step() == []
            own.resume()
            own.put_to(stream, S0, texts("a", 10, 15))
            loop.until_read(15)
            assert loop.read == texts("a", 15)
    finally:
        own.stop()


def fails(kinesis: Kinesis, stream: str, **properties: str) -> str:
    changed = {name.replace("_", "."): value for name, value in properties.items()}
    source = builder(kinesis, stream).set_properties(changed).build()
    with Loop(source) as loop, pytest.raises(ConfigError) as failed:
        loop.until_it_fails()
    return str(failed.value)


def test_streams_and_credentials_that_are_wrong(kinesis: Kinesis) -> None:
    stream = kinesis.create_stream()
    for error in (fails(kinesis, "nowhere"), fails(kinesis, stream, aws_region="us-east-2")):
        assert "there is no such stream in region" in error
        assert "create it, or correct set_stream_name(), or correct aws.region" in error
    error = fails(kinesis, stream, aws_credentials_provider_basic_accesskeyid=WRONG_KEY)
    assert f"KinesisSource: stream '{stream}': region 'eu-west-1' at {kinesis.endpoint} does not accept the credentials" in error
    assert "correct or renew them" in error
    error = fails(kinesis, stream, aws_credentials_provider_profile_name="nobody")
    assert "profile (nobody) could not be found" in error


def test_a_service_that_cannot_be_reached(kinesis: Kinesis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forkpoint_kinesis.watcher.FIRST_ANSWER_S", 0.5)
    source = builder(kinesis, "s").set_property("aws.endpoint", "http://127.0.0.1:1").build()
    with Loop(source) as loop, pytest.raises(SystemUnavailable, match=r"does not work: .*127\.0\.0\.1:1"):
        loop.until_it_fails()


def test_what_is_missing_or_wrong_is_said(kinesis: Kinesis) -> None:
    empty = fp.KinesisSource.builder
    for build, message in (
        (lambda: empty().build(), "no stream; call set_stream_name"),
        (lambda: empty().set_stream_name("s").build(), "no schema; call set_deserialization_schema"),
        (lambda: empty().set_stream_arn("orders"), "is not a stream's ARN, such as arn:aws"),
        (lambda: empty().set_deserialization_schema("x"), "is neither a DeserializationSchema nor"),  # type: ignore[arg-type]
        (lambda: empty().set_initial_position("FIRST"), "give one of 'TRIM_HORIZON', 'LATEST'"),  # type: ignore[arg-type]
        (lambda: empty().set_initial_position("AT_TIMESTAMP"), "give a timestamp with 'AT_TIMESTAMP'"),
        (lambda: empty().set_on_parse_error("stop"), "give 'fail' or 'skip'"),  # type: ignore[arg-type]
        (lambda: empty().set_on_expired("stop"), "give 'fail' or 'skip'"),  # type: ignore[arg-type]
        (lambda: builder(kinesis, "s").set_property("aws.regoin", "x").build(), "unknown properties aws.regoin"),
        (
            lambda: builder(kinesis, "s").set_property("aws.credentials.provider", "ASSUME_ROLE").build(),
            "name it in a profile",
        ),
        (lambda: builder(kinesis, "s").set_property("flink.stream.recordpublisher", "EFO").build(), "enhanced fan-out"),
        (
            lambda: builder(kinesis, "s").set_property("flink.shard.discovery.intervalmillis", "x").build(),
            "give a number",
        ),
        (lambda: FlinkKinesisConsumer(["a", "b"], Text(), {}), "2 streams; read each with its own source"),
        (lambda: FlinkKinesisConsumer("a", Text(), {"flink.stream.initpos": "x"}), "give one of TRIM_HORIZON"),
        (
            lambda: FlinkKinesisConsumer(
                "a", Text(), {"flink.stream.initpos": "AT_TIMESTAMP", "flink.stream.initpos.timestamp": "x"}
            ),
            "give seconds since 1970",
        ),
    ):
        with pytest.raises(ConfigError, match=message):
            build()


def test_secrets_are_not_shown(kinesis: Kinesis) -> None:
    assert "secret" not in repr(builder(kinesis, "s").build())
