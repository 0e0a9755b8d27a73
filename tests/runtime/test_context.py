"""The context of an epoch, which is sent with every task."""

from __future__ import annotations

import uuid

from forkpoint.runtime.exchange.control import EpochContext, SplitStart, decode_context, encode_context


def context(subtasks: int) -> EpochContext:
    return EpochContext(
        generation=1, epoch=7, committed=6, processing_time_ms=1_700_000_000_000, drain=False,
        previous={f"1-{subtask}": uuid.uuid4().hex[:16] for subtask in range(subtasks)},
        splits={"0": {f"topic-{n}": SplitStart(1_700_000_000_000 - n, generator=b"\0\xff") for n in range(subtasks)}},
        watermarks={"counts": -(2**63)}, snapshot_subtasks=list(range(subtasks)),
    )  # fmt: skip


def test_it_arrives_as_it_was_sent() -> None:
    sent = context(50)
    assert decode_context(encode_context(sent)) == sent


def test_a_thousand_subtasks_with_a_split_each_take_few_kilobytes() -> None:
    assert len(encode_context(context(1000))) < 30_000
