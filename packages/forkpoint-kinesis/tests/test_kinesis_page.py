"""The programs of docs/kinesis.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from examples.doc_blocks import ROOT, blocks
from forkpoint_kinesis.source import KinesisSourceBuilder
from kinesis_jobs import FAST, bounded
from servers.kinesis_server import Kinesis

PROGRAM, *WRITING = (block for block in blocks(ROOT / "docs" / "kinesis.md") if block.info == "python")


@pytest.mark.slow
def test_the_programs(kinesis: Kinesis, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    names: dict[str, Any] = {"__name__": "app"}
    for block in (PROGRAM, *WRITING):
        exec(compile(block.text, block.name, "exec", dont_inherit=True), names)
    orders = [("ann", 1.5), ("bob", 2.0), ("ann", 3.0)]
    for stream in ("orders", "totals"):
        kinesis.create_stream(stream, shards=2)
    kinesis.create_delivery_stream("totals-to-s3")
    kinesis.put("orders", [(name, b'{"amount": %r}' % amount) for name, amount in orders])
    usual = KinesisSourceBuilder.build
    monkeypatch.setattr(KinesisSourceBuilder, "build", lambda self: bounded(usual(self), len(orders)))

    env = names["fp"].StreamExecutionEnvironment.get_execution_environment().set_state_root(str(tmp_path))
    totals = names["totals"](env, {**kinesis.properties, **FAST})
    names["to_kinesis"](totals, kinesis.properties)
    names["to_firehose"](totals, kinesis.properties)
    env.execute("totals")
    written = {key: json.loads(data) for key, data in kinesis.read("totals")}
    assert written == {"ann": {"customer": "ann", "total": 4.5}, "bob": {"customer": "bob", "total": 2.0}}
    lines = [json.loads(line) for line in kinesis.delivered("totals-to-s3").splitlines()]
    assert {line["customer"]: line["total"] for line in lines} == {"ann": 4.5, "bob": 2.0}


def test_pyflinks_names(kinesis: Kinesis, tmp_path: Path) -> None:
    import forkpoint.pyflink

    forkpoint.pyflink.install()
    stream, to = kinesis.create_stream(), kinesis.create_stream()
    kinesis.put(stream, [("k", b"one"), ("k", b"two")])
    names: dict[str, Any] = {}
    exec(
        "from pyflink.common.serialization import SimpleStringSchema\n"
        "from pyflink.datastream import StreamExecutionEnvironment\n"
        "from pyflink.datastream.connectors.kinesis import FlinkKinesisConsumer, KinesisStreamsSink, PartitionKeyGenerator\n",
        names,
    )
    start = {"flink.stream.initpos": "TRIM_HORIZON"}
    consumer = names["FlinkKinesisConsumer"](stream, names["SimpleStringSchema"](), {**kinesis.properties, **FAST, **start})
    env = names["StreamExecutionEnvironment"].get_execution_environment().set_state_root(str(tmp_path))
    sink = names["KinesisStreamsSink"].builder().set_stream_name(to).set_serialization_schema(names["SimpleStringSchema"]())
    sink.set_partition_key_generator(names["PartitionKeyGenerator"].fixed())
    read = env.add_source(bounded(consumer, 2)).uid("source")
    read.sink_to(sink.set_kinesis_client_properties(kinesis.properties).build()).uid("sink")
    env.execute()
    assert [data for _, data in kinesis.read(to)] == [b"one", b"two"]
