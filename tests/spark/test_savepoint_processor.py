"""Savepoints and DataFrames: state read as one, state made of one, and a job that begins with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import forkpoint as fp
from forkpoint.api.launch import Launch
from forkpoint.graph.options import RestoreOptions
from forkpoint.state_processor import SavepointReader, SavepointWriter, diff

pytestmark = pytest.mark.spark


class Account(NamedTuple):
    owner: str
    balance: int


class Bank(fp.KeyedProcessFunction):
    account = fp.ValueStateDescriptor("account", Account)
    past = fp.ListStateDescriptor("past", int)

    def process_element(self, amount: int, ctx: Any) -> Iterator[Any]:
        self.past.add(amount)
        account = self.account.value()
        yield ctx.get_current_key(), None if account is None else account.owner, list(self.past.get())


class Payments(Bank):
    def process_element(self, payment: Any, ctx: Any) -> Iterator[Any]:
        yield from super().process_element(payment[1], ctx)


def test_frames_in_and_out_and_a_job_that_goes_on(session: SparkSession, tmp_path: Path) -> None:
    ids = session.range(0, 3000, 1, 3).withColumnRenamed("id", "key")
    accounts = ids.select(
        "key", f.struct(f.concat(f.lit("o"), "key").alias("owner"), (f.col("key") * 2).alias("balance")).alias("value")
    )
    past = ids.select("key", (f.col("key") + 1).alias("value"))
    writer = SavepointWriter.new_savepoint("bank", max_parallelism=3)
    writer.with_state("bank", Bank.account, accounts, key_type=int).with_state("bank", Bank.past, past)
    made = writer.write(tmp_path / "made")
    assert made.verify().entries == 6000
    assert made.state("bank", "account").get(1234) == Account("o1234", 2468)

    frame = made.state("bank", "account").to_spark(session)
    assert frame.columns == ["key_group", "key", "owner", "balance"]
    row = frame.agg(f.count("*").alias("n"), f.sum("balance").alias("total")).collect()[0]
    assert (row.n, row.total) == (3000, 2999 * 3000)

    edited = (
        SavepointWriter.from_existing_savepoint(made)
        .filter("bank", "key % 2 = 0")
        .map("bank", "past", lambda values: [*values, 0])
        .with_max_parallelism(4)
        .write(tmp_path / "edited", spark=session)
    )
    assert edited.verify().entries == 1500 + 3000
    removed = {state.name: state.removed for state in diff(made, edited).states}
    assert removed == {"account": 1500, "past": 1500}

    with pytest.raises(fp.EditRefused, match="no column 'owner' of type STRING"):
        SavepointWriter.new_savepoint("bank").with_state("bank", Bank.account, past, key_type=int).write(tmp_path / "wrong")

    nulls = past.select("key", f.when(f.col("key") < 2000, f.col("value")).alias("value"))
    with pytest.raises(fp.EditRefused, match=r"column 'value' has \d+ nulls"):
        SavepointWriter.new_savepoint("bank").with_state("bank", Bank.past, nulls, key_type=int).write(tmp_path / "wrong")

    env = fp.StreamExecutionEnvironment()
    env.set_parallelism(2)
    env.set_max_parallelism(4)
    payments = env.from_collection([(4, 10), (5, 20), (4, 30)]).uid("payments")
    results = payments.key_by(lambda p: p[0], int).process(Payments()).uid("bank")
    env.launch = Launch(
        options={"engine": "spark"}, state_root=str(tmp_path / "root"), restore=RestoreOptions(savepoint=edited.path)
    )
    with results.execute_and_collect() as found:
        by_key: dict[int, list[Any]] = {}
        for key, owner, values in found:
            by_key.setdefault(key, []).append((owner, values))
    assert by_key == {4: [("o4", [5, 0, 10]), ("o4", [5, 0, 10, 30])], 5: [(None, [20])]}


def test_reading_with_spark_is_reading_with_arrow(session: SparkSession, tmp_path: Path) -> None:
    made = (
        SavepointWriter.new_savepoint("job")
        .with_state(
            "op",
            fp.MapStateDescriptor("m", str, list[int]),
            [{"key": 1, "map_key": "a", "value": [1, 2]}],
            key_type=int,
        )
        .with_timers("op", {"key": [1], "timestamp": [5]})
        .write(tmp_path)
    )
    for state in SavepointReader.read(made.path).states:
        rows = [row.asDict() for row in state.to_spark(session).collect()]
        wanted = state.to_arrow().to_pylist()
        assert [{k: bytes(v) if isinstance(v, bytearray) else v for k, v in row.items()} for row in rows] == wanted
