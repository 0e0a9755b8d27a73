"""The source against a server: what is planned and read, through all that happens to streams and shards."""

from __future__ import annotations

from kinesis_jobs import Loop, builder, read

from servers.kinesis_server import Kinesis

S0, S1 = "shardId-000000000000", "shardId-000000000001"


def test_all_records_of_all_shards_in_order(kinesis: Kinesis) -> None:
    stream = kinesis.create_stream(shards=2)
    kinesis.put_to(stream, S0, [f"a{n}" for n in range(10)])
    kinesis.put_to(stream, S1, [f"b{n}" for n in range(5)])
    found = read(builder(kinesis, stream).build(), 15)
    assert found == {S0: [f"a{n}" for n in range(10)], S1: [f"b{n}" for n in range(5)]}


def test_a_position_is_where_to_go_on(kinesis: Kinesis) -> None:
    stream = kinesis.create_stream(shards=2)
    kinesis.put_to(stream, S0, [f"a{n}" for n in range(10)])
    kinesis.put_to(stream, S1, [f"b{n}" for n in range(10)])
    source = builder(kinesis, stream).build()
    with Loop(source) as loop:
        loop.until_read(7, max_rows=4)
        position, before = loop.position, loop.values
    rest = read(source, 20 - len([v for values in before.values() for v in values]), position)
    assert before.get(S0, []) + rest.get(S0, []) == [f"a{n}" for n in range(10)]
    assert before.get(S1, []) + rest.get(S1, []) == [f"b{n}" for n in range(10)]
