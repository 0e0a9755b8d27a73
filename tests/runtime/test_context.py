"""The context of an epoch, which is sent with every task."""

from __future__ import annotations

import uuid

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from forkpoint.runtime.exchange.control import (
    EpochContext,
    SplitStart,
    decode_context,
    decode_part,
    divide,
    encode_context,
    encode_part,
)


def context(subtasks: int) -> EpochContext:
    return EpochContext(
        generation=1,
        epoch=7,
        committed=6,
        processing_time_ms=1_700_000_000_000,
        drain=False,
        previous={f"1-{subtask}": uuid.uuid4().hex[:16] for subtask in range(subtasks)},
        splits={"0": {f"topic-{n}": SplitStart(1_700_000_000_000 - n, generator=b"\0\xff") for n in range(subtasks)}},
        watermarks={"counts": -(2**63)},
        snapshot_subtasks=list(range(subtasks)),
    )


def test_it_arrives_as_it_was_sent() -> None:
    sent = context(50)
    assert decode_context(encode_context(sent)) == sent


def test_a_thousand_splits_take_few_kilobytes() -> None:
    assert len(encode_context(divide(context(1000), 1000)[0])) < 10_000


@given(st.integers(1, 40), st.integers(0, 3), st.data())
def test_each_subtask_gets_what_is_its_own_and_all_that_is_common(parallelism: int, stages: int, data: st.DataObject) -> None:
    whole = replace(
        context(3),
        previous={f"{stage}-{subtask}": uuid.uuid4().hex for stage in range(1, stages + 1) for subtask in range(parallelism)},
        snapshot_subtasks=data.draw(st.lists(st.integers(0, parallelism - 1), unique=True)),
    )
    common, parts = divide(whole, parallelism)
    assert len(parts) == parallelism
    for subtask, part in enumerate(parts):
        own = {f"{stage}-{subtask}" for stage in range(1, stages + 1)}
        assert decode_part(encode_part(part)).joined(decode_context(encode_context(common)), subtask) == replace(
            whole,
            previous={name: attempt for name, attempt in whole.previous.items() if name in own},
            snapshot_subtasks=[subtask] if subtask in whole.snapshot_subtasks else [],
        )


def test_what_a_task_is_sent_does_not_depend_on_the_number_of_subtasks() -> None:
    def sent(subtasks: int) -> int:
        common, parts = divide(replace(context(subtasks), splits={}), subtasks)
        return len(encode_context(common)) + max(len(encode_part(part)) for part in parts)

    assert sent(10_000) < sent(1) + 10
