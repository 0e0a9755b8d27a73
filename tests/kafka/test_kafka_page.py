"""The program of docs/kafka.md."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_jobs import PatientEnumerator

from examples.doc_blocks import ROOT, blocks
from forkpoint.testing import Eof, run_local
from servers.kafka import Kafka, Message

PROGRAM, WRITING = (block for block in blocks(ROOT / "docs" / "kafka.md") if block.info == "python")


def test_the_program(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, Any] = {"__name__": "app"}
    exec(compile(PROGRAM.text, PROGRAM.name, "exec", dont_inherit=True), names)
    kafka.create_topic("orders", partitions=2)
    orders = [("ann", 1.5), ("bob", 2.0), ("ann", 3.0)]
    kafka.produce("orders", [Message(b'{"amount": %r}' % amount, name.encode()) for name, amount in orders])
    monkeypatch.setattr("forkpoint.connectors.kafka.source.KafkaEnumerator", PatientEnumerator)

    exec(compile(WRITING.text, WRITING.name, "exec", dont_inherit=True), names)
    kafka.create_topic("totals", partitions=2)

    def build(env: Any, script: Any) -> Any:
        env.from_source(script, names["fp"].WatermarkStrategy.no_watermarks(), "script").print().uid("nowhere")
        totals = names["totals"](env, kafka.bootstrap_servers)
        names["to_kafka"](totals, kafka.bootstrap_servers)
        return totals

    totals = run_local(build, [Eof()]).output
    assert sorted(totals)[-2:] == [("ann", 4.5), ("bob", 2.0)]
    written = {message.key: message.value for message in kafka.read("totals")}
    assert written == {b"ann": b'{"customer":"ann","total":4.5}', b"bob": b'{"customer":"bob","total":2.0}'}
